"""What a piece of work is told to have taken, whatever its thread was kept from meanwhile."""

from __future__ import annotations

import time

from adapters import clock
from adapters.clock import Spent


def test_a_queue_behind_the_end_of_the_work_is_not_the_works_own(monkeypatch):
    """Trials told of batches that took 1e-06 ms."""
    queued = iter([0.0, 1.0])

    def asked() -> float:
        time.sleep(0.02)
        return next(queued) * 0.02

    monkeypatch.setattr(clock, "_queued_seconds", asked)
    began = Spent.now()
    spent = began.until_now()  # Others ran while it asked, but not while it worked.
    assert spent.queued_seconds < 0.001 < 0.019 < spent.own_seconds
