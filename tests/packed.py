"""Packs of evidence in tests: made of a run, checked, and changed by somebody who knows the form."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

from opacc_ray.extensions.evidence.evidence import pack, zipped
from opacc_ray.extensions.evidence.verify import PackVerification, verify_pack
from opacc_ray.runs.run import Run


def verified_pack(run: Run, home: Path) -> PackVerification:
    """Return what a check of the pack of a run finds: every number is recomputed, and agrees."""
    pack(run, str(home / "evidence.zip"))
    found = verify_pack(str(home / "evidence.zip"))
    assert (found.faults, found.estimate and found.estimate.recomputed) == ([], "all numbers")
    return found


def members_of(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_pack(file: Path, members: Mapping[str, bytes]) -> str:
    file.write_bytes(zipped(members))
    return str(file)
