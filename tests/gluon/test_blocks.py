"""Gluon's blocks on several threads, each built once."""

from __future__ import annotations

import threading

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset
from mxnet.gluon.data.vision import transforms

from adapters import gluon_loader
from adapters.gluon.stages import call
from tests.gluon.data_sets import pixels

SECONDS = 10


class Meeting(mx.gluon.Block):
    """Tells how many calls there are at the same time, of two that would meet if they could."""

    def __init__(self, patience: float) -> None:
        super().__init__()
        self.patience = patience
        self.met: list[bool] = []
        self._both = threading.Barrier(2)

    def forward(self, value):
        try:
            self._both.wait(self.patience)
            self.met.append(True)
        except threading.BrokenBarrierError:
            self._both.reset()
            self.met.append(False)
        return value


def called_by_two_threads(block: Meeting) -> list[bool]:
    block.met.clear()
    threads = [threading.Thread(target=call, args=(block, 1)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    return block.met


def test_nobody_else_calls_a_block_that_is_being_built():
    assert called_by_two_threads(Meeting(0.2)) == [False, False]


def test_a_block_that_was_built_is_called_by_several_threads_at_once():
    block = Meeting(0.0)
    call(block, 1)
    block.patience = SECONDS
    assert called_by_two_threads(block) == [True, True]


def test_a_block_whose_first_call_failed_is_still_to_be_built():
    block = Meeting(0.2)
    with pytest.raises(TypeError):
        call(block)
    assert called_by_two_threads(block) == [False, False]


@pytest.mark.parametrize("opaque", [False, True], ids=["known", "opaque"])
def test_new_transforms_work_on_threads(opaque):
    """Without the lock, two of five such loaders fail."""
    data = ArrayDataset(mx.nd.array(pixels(64, 40, 44), dtype="uint8"), np.arange(64))
    for _ in range(20):
        blocks = [transforms.Resize(20), transforms.ToTensor(), transforms.Normalize(0.1, 0.2)]
        transform = transforms.Compose(blocks)
        if opaque:
            transform = transforms.Compose([transforms.RandomLighting(0.1), *blocks[:1]])
        with gluon_loader(
            data.transform_first(transform), 8, num_workers=2, thread_pool=True
        ) as loader:
            assert len(list(loader)) == 8


@pytest.mark.parametrize("method", ["forward", "hybrid_forward"])
def test_a_method_of_one_block_alone_is_called(method):
    block = transforms.ToTensor()
    object.__setattr__(block, method, lambda *arguments: arguments[-1].astype("float32"))
    data = ArrayDataset(mx.nd.array(pixels(4), dtype="uint8"), np.arange(4)).transform_first(block)
    with gluon_loader(data, 2, num_workers=0) as loader:
        assert next(iter(loader))[0].shape[-1] == 3
