"""Ratios of ours to a peer's best round: README's six by default, all with `--long`."""

from __future__ import annotations

import pytest

from benchmarks.experiments import gluon_ratios, keras_ratios, records_ratios
from benchmarks.harness.ratios import Ratio, run_ratio
from benchmarks.harness.sweeps import Session

TABLES = {module.__name__: module.TABLE for module in (records_ratios, keras_ratios, gluon_ratios)}
# README's first.
ROWS = sorted(
    ((program, name, ratio) for program, table in TABLES.items() for name, ratio in table.items()),
    key=lambda row: not row[2].default,
)


@pytest.mark.parametrize(
    ("program", "name", "ratio"),
    [
        pytest.param(*row, id=row[1], marks=() if row[2].default else pytest.mark.long)
        for row in ROWS
    ],
)
def test_ratio(session: Session, program: str, name: str, ratio: Ratio) -> None:
    """The row ends well, and loses, repeats and changes no sample; its speed is information."""
    run_ratio(session, program, name, ratio)
