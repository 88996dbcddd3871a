"""Threads that share one pass over a loader."""

from __future__ import annotations

import numpy as np

from tests.gluon.executors import every_kind, opened
from tests.turns import read_by_threads

SIZE = 301


@every_kind
def test_each_batch_goes_to_one_of_them(executor):
    with opened(np.arange(SIZE), executor, 1, shuffle=True, seed=0) as loader:
        for epoch in range(3):
            given = read_by_threads(iter(loader))
            assert sorted(int(batch.asnumpy()[0]) for batch in given) == list(range(SIZE))
            assert loader.state_dict() == {"epoch": epoch + 1, "batch": 0}
