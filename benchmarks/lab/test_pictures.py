"""Ratios of folders, packed pictures and mixes to our own JPEG path, and to peers."""

from __future__ import annotations

import pytest

from benchmarks.harness.ratios import run_ratio
from benchmarks.harness.sweeps import Session
from benchmarks.lab.experiments import pictures_ratios


@pytest.mark.parametrize("name", pictures_ratios.TABLE)
def test_ratio(session: Session, name: str) -> None:
    """The row ends well, and loses, repeats and changes no sample."""
    run_ratio(session, pictures_ratios.__name__, name, pictures_ratios.TABLE[name])
