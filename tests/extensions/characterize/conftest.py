"""Fixtures of the tests of characterisation."""

import pytest

from opacc_ray.extensions.characterize import covariate_shift


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small mixtures, which are fast."""
    for name, value in (("COMPONENTS", 2), ("DIRECTIONS", 2), ("POINTS", 4000)):
        monkeypatch.setattr(covariate_shift, name, value)
