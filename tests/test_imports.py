"""The import rules: what is light stays light."""

import subprocess
import sys

import pytest

HEAVY = ("ray", "torch", "boto3", "pyarrow", "pydantic", "sklearn")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import opacc_ray", (*HEAVY, "numpy", "scipy")),
        ("import opacc_ray; opacc_ray.Pool, opacc_ray.select, opacc_ray.estimate, opacc_ray.Selection", HEAVY),
        ("import opacc_ray as o; o.select(o.Pool(ids='abc'), 'srs', 2)", ("numba",)),
        ("import opacc_ray.cli.main", (*HEAVY, "numpy")),
        ("import opacc_ray.audit.verbs", ("ray", "torch", "boto3")),
    ],
)
def test_import_does_not_pull_in_heavy_packages(statement: str, unwanted: tuple[str, ...]) -> None:
    check = f"{statement}; import sys; print(*[name for name in {unwanted!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
