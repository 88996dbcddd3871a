"""How inputs are cut into tasks for somebody elsewhere."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from adapters.packing.executors import Workers
from adapters.packing.inputs import Inputs, Item
from adapters.packing.tasks import Encoded, outcomes_of


class Numbered:
    """An encoder whose records are the inputs' names."""

    def record(self, item: Item) -> bytes:
        return item.name.encode()


class Noting:
    """Does tasks at once, and notes how many inputs they have; each takes 0.2 ms, by its clock."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def submit(self, task: Any) -> Future[Encoded]:
        outcomes = task().outcomes
        self.lengths.append(len(outcomes))
        future: Future[Encoded] = Future()
        future.set_result(Encoded(outcomes, 0.0002 * len(outcomes)))
        return future


@pytest.mark.parametrize("count", [1, 7, 3000, 20_000])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_last_tasks_are_short_and_no_input_is_lost(count, workers):
    """Others wait for an eighth of a long one at the most: of 1,000 inputs, 0.2 s."""
    items = [Item(str(number), number, 0, bytes) for number in range(count)]
    noting = Noting()
    encoder: Any = Numbered()
    inputs = Inputs(items, None, None)
    outcomes = outcomes_of(inputs, 0, encoder, False, Workers(noting.submit, workers, True))
    assert [each.record for each in outcomes] == [str(n).encode() for n in range(count)]
    assert noting.lengths[-1] <= 125
    if count == 20_000:
        assert max(noting.lengths) > 300
        assert len(noting.lengths) < 80
