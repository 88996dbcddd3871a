"""What ours must be worth against a peer, or against itself with other workers."""

from __future__ import annotations

import importlib.util

import pytest

from benchmarks.ratios import COLUMNS, COMPARISONS
from benchmarks.sweeps import RowSpec, Session, our_failures

LIMIT_SECONDS = 120


@pytest.mark.flaky(reruns=0)  # Measuring until it is right would prove nothing.
@pytest.mark.parametrize("name", COMPARISONS)
def test_ratio(session: Session, name: str) -> None:
    """Our median reaches the bar over the peer's best round; at parity, its middle half."""
    if COMPARISONS[name].backend == "torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is in no extra, as its default wheel pulls gigabytes")
    if session.size == "smoke":
        pytest.skip("a ratio of a single short round says nothing")
    experiment = session.experiment("ratios", "Ratios: ours against the peer's best round")
    experiment.columns = COLUMNS
    spec = RowSpec(
        framework="Keras",
        loader=name,
        workers="",
        ours=True,
        program="benchmarks.ratios",
        options={"rounds": session.repeats},
        limit_seconds=LIMIT_SECONDS,
    )
    runs = session.sweep(experiment, [spec], repeats=1)
    assert our_failures(runs) == []
    for run in runs:
        found = run.metrics
        parity = found["bar"] == 1 and found["ours"] >= found["peer_low"]
        assert parity or found["ratio"] >= found["bar"], run.software
