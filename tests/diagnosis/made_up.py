"""A diagnosis that is made up."""

from __future__ import annotations

import dataclasses
from typing import Any

from adapters.diagnosis import Diagnosis
from adapters.diagnosis.verdict import Workers

THREADS = Workers("threads", 2, 4)
# Share of the time in which others have the CPUs.
BUSY = 0.6
# A step of 10 ms that has to wait for a loader of 40 ms.
SLOW = Diagnosis(
    samples=64,
    whole=0.040,
    loader=0.040,
    same=0.010,
    copy=None,
    storage=0.002,
    memory=0.003,
    collation=0.001,
    alone=0.080,
    fetch_computes=0.1,
    waits_seconds=(0.03,) * 100,
    workers=THREADS,
)


def made_up(**changes: Any) -> Diagnosis:
    return dataclasses.replace(SLOW, **changes)
