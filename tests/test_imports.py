"""The import rules: what is light stays light."""

import subprocess
import sys

import pytest

HEAVY = ("ray", "torch", "boto3", "pyarrow", "pydantic", "sklearn")


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import opacc_ray", (*HEAVY, "numpy", "scipy")),
        ("import opacc_ray; opacc_ray.Pool, opacc_ray.select, opacc_ray.estimate, opacc_ray.Selection", HEAVY),
        ("import opacc_ray.samplers, opacc_ray.estimators", HEAVY),
        ("import opacc_ray.cli", (*HEAVY, "numpy")),
        ("import opacc_ray.audit", ("ray", "torch", "boto3")),
    ],
)
def test_import_does_not_pull_in_heavy_packages(statement: str, unwanted: tuple[str, ...]) -> None:
    check = f"{statement}; import sys; print(*[name for name in {unwanted!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(("package", "home"), [("ray", "cluster"), ("boto3", "storage"), ("torch", "model")])
def test_each_heavy_package_has_one_home(package: str, home: str) -> None:
    import re
    from pathlib import Path

    import opacc_ray

    root = Path(opacc_ray.__file__).parent
    users = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(rf"^\s*(import|from) {package}\b", path.read_text(), re.MULTILINE)
    }
    assert users - {"demo/model.py"} == {f"{home}.py"}  # the demo plays a user, who writes torch
