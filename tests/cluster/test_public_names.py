"""The package uses public names of Ray only."""

import re
from pathlib import Path

import opacc_ray


def test_package_uses_no_private_module_of_ray() -> None:
    package = Path(opacc_ray.__file__).parent
    files = sorted(package.rglob("*.py"))
    private = re.compile(r"\bray\._|\b_raylet\b|\bfrom ray\S* import .*\b_\w+|\bimport ray\._")
    found = [path.relative_to(package).as_posix() for path in files if private.search(path.read_text())]
    assert len(files) > 100
    assert found == []
