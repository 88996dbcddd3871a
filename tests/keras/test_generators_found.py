"""What classes of every kind draw is seeded, and nobody else's generator is touched."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from adapters import SafeSequence
from tests.test_bytecode import Slots

pytestmark = pytest.mark.one_backend


class Noisy(list):
    def __getitem__(self, number: Any) -> Any:
        return super().__getitem__(number) + random.random()


@pytest.mark.parametrize("way", ["transform", "batch_transform", "source"])
def test_the_batches_are_the_same_for_every_kind_of_workers_and_nobody_elses_state_changes(way):
    before = random.getstate(), np.random.get_state()[1].tolist()
    source = Noisy(range(24)) if way == "source" else np.arange(24.0)
    arguments = {} if way == "source" else {way: Slots()}

    def batches(**workers: Any) -> list[Any]:
        with SafeSequence(source, 4, **arguments, **workers) as sequence:
            return [np.asarray(batch).tolist() for batch in sequence]

    expected = batches(workers=0)
    assert batches(workers=0) == expected
    assert batches(workers=2, use_multiprocessing=True) == expected
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
