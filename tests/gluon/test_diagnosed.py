"""``adapters.diagnose`` and ``adapters doctor`` of Gluon's loaders."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset, BatchSampler, DataLoader, Dataset, RandomSampler
from mxnet.gluon.data.vision import transforms

from adapters import diagnose, gluon_loader, split
from adapters.diagnosis import Diagnosis
from adapters.diagnosis.sweep import Setting, line_of
from adapters.gluon.diagnosed import FRONT_END
from tests.cli.scripts import doctored, found_in
from tests.diagnosis.made_up import made_up
from tests.diagnosis.planted import (
    BATCH_SIZE,
    SECONDS,
    SIZE,
    SLOW,
    Numbers,
    Waiting,
    burn,
    quick_step,
    slow_step,
)


class Gluons(Dataset):
    """A data set as a Gluon data set, which can be transformed."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, number: int) -> Any:
        return self.data[number]


def burning(*sample: Any) -> Any:
    burn(SLOW)
    return sample


def burning_batchify(samples: list[Any]) -> Any:
    burn(BATCH_SIZE * SLOW)
    return mx.nd.array(np.stack([sample[0] for sample in samples]))


def found(data: Any, step: Any = quick_step, **options: Any) -> Diagnosis:
    options = {"num_workers": 0, "batch_size": BATCH_SIZE, **options}
    with gluon_loader(data, **options) as loader:
        return diagnose(loader, step, seconds=SECONDS)


def arrays(*shape: int) -> ArrayDataset:
    return ArrayDataset(np.zeros((SIZE, *shape), np.uint8), np.arange(SIZE))


def batches_of(loader: Any) -> list[list[float]]:
    return [batch[-1].asnumpy().ravel().tolist() for batch in loader]


# --- planted bottlenecks ---


BATCHES = [[0, 3, -1, 5], (1, 2, 4, 7), np.array([9, 8])]


def images() -> Any:
    return ArrayDataset(mx.nd.zeros((SIZE, 32, 32, 3), dtype="uint8"), np.arange(SIZE))


def resized() -> Any:
    resize = transforms.Compose([transforms.Resize(64), transforms.ToTensor()])
    return images().transform_first(resize)


def large_part() -> Any:
    rows = np.zeros((2 * SIZE, 300, 300, 3), np.uint8), np.arange(2 * SIZE)
    return split(rows, [0.5])[0]


def planted(data: Any, expected: str, *, full: bool = False, **options: Any) -> Any:
    return pytest.param(data, options, expected, marks=[pytest.mark.full] if full else [])


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        planted(Waiting, "storage"),
        planted(lambda: Gluons(Numbers()).transform(burning), "transforms"),
        planted(resized, "transforms"),
        planted(Numbers, "collation", batchify_fn=burning_batchify),
        planted(large_part, "collation", full=True, shuffle=True),
        planted(Waiting, "storage", batch_size=None, batch_sampler=BATCHES),
        planted(lambda: Gluons(Waiting()).take(20).shard(2, 1), "storage", full=True, batch_size=4),
    ],
)
def test_bottleneck_is_found(data, options, expected):
    assert found(data(), **options).bottleneck == expected
    mx.nd.waitall()


def test_own_sampler_is_asked():
    diagnosis = found(Waiting(), sampler=RandomSampler(SIZE))
    assert (diagnosis.bottleneck, diagnosis.samples) == ("storage", BATCH_SIZE)


def test_advice_about_gluons_transforms_is_said():
    """Of figures that are made up: those of a busy machine may be good for no advice."""
    assert found(resized()).hints is FRONT_END.hints
    diagnosis = made_up(memory=0.038, hints=FRONT_END.hints)
    assert "loader.explain()" in str(diagnosis)


# --- which samples ---


def test_samples_may_be_named_by_words():
    class Named(Dataset):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, name: str) -> Any:
            slow_step(None)
            return np.float32([len(name)])

    diagnosis = found(Named(), batch_size=None, batch_sampler=[["one", "three"]])
    assert diagnosis.bottleneck == "storage"


def test_loader_without_batches_is_refused():
    with pytest.raises(ValueError, match="loader must give batches each time"):
        found(Numbers(), batch_size=None, batch_sampler=[])


# --- MXNet's own loader ---


def test_mxnets_own_loader_is_examined_as_ours():
    theirs = DataLoader(Gluons(Waiting()), BATCH_SIZE, num_workers=1, thread_pool=True)
    diagnosis = diagnose(theirs, quick_step, seconds=SECONDS)
    theirs._worker_pool.terminate()
    theirs._worker_pool.join()
    assert diagnosis.bottleneck == "storage"
    assert diagnosis.replaced == "gluon_loader in the place of DataLoader, same arguments"
    assert diagnosis.workers.count == 1


def test_batchify_of_mxnets_own_loader_is_taken_over():
    theirs = DataLoader(Gluons(Numbers()), BATCH_SIZE, batchify_fn=burning_batchify)
    assert diagnose(theirs, quick_step, seconds=SECONDS).bottleneck == "collation"


# --- nothing changes ---


def test_what_is_left_over_of_a_pass_stays_for_the_next():
    options = {"batch_size": 24, "shuffle": True, "seed": 1, "num_workers": 0}
    with (
        gluon_loader(Numbers(), last_batch="rollover", **options) as loader,
        gluon_loader(Numbers(), last_batch="rollover", **options) as untouched,
    ):
        assert batches_of(loader) == batches_of(untouched)
        diagnose(loader, quick_step, seconds=SECONDS)
        assert loader.waits.batches == SIZE // 24
        assert [batches_of(loader) for _ in range(2)] == [batches_of(untouched) for _ in range(2)]


def test_sampler_that_is_under_way_is_not_disturbed():
    sampler = BatchSampler(range(SIZE), BATCH_SIZE, "rollover")
    under_way = iter(sampler)
    next(under_way)
    with gluon_loader(Numbers(), batch_sampler=sampler, num_workers=0) as loader:
        diagnose(loader, quick_step, seconds=SECONDS)
    assert [len(batch) for batch in under_way] == [BATCH_SIZE] * (SIZE // BATCH_SIZE - 1)


# --- what is recommended ---


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        (Setting("auto", 0, 10), 'num_workers="auto", prefetch=10)'),
        (Setting("inline", 0, 10), "num_workers=0)"),
        (Setting("threads", 4, 10), "num_workers=4, thread_pool=True, prefetch=10)"),
        (Setting("processes", 2, 10), "num_workers=2, thread_pool=False, prefetch=10)"),
    ],
)
def test_line_can_be_pasted(setting, line):
    with gluon_loader(Numbers(), BATCH_SIZE, num_workers=0) as loader:
        assert line_of(loader, setting) == f"gluon_loader(..., {line}"


# --- adapters doctor ---


LOOP = """
import sys
import time
from adapters.gluon import gluon_loader, import_mxnet

mx = import_mxnet()
import numpy as np
from mxnet.gluon.data import ArrayDataset, DataLoader

data = ArrayDataset(np.zeros((64, 3), "float32"), np.arange(64))

class Slow(ArrayDataset):
    def __getitem__(self, number):
        time.sleep(0.004)
        return super().__getitem__(number)

slow = Slow(np.zeros((64, 3), "float32"), np.arange(64))

def train(loader, seconds):
    for epoch in range(1000):
        for x, y in loader:
            time.sleep(seconds)
            (2 * x).wait_to_read()
"""


@pytest.mark.full
def test_mxnets_loader_on_slow_storage_is_found(tmp_path):
    text = LOOP + "train(DataLoader(slow, 8, shuffle=True), 0)\nprint('went on')"
    process = doctored(tmp_path, text)
    assert found_in(process) == "storage: fetching the samples"
    assert "gluon_loader in the place of DataLoader" in process.stdout
    assert "went on" not in process.stdout


@pytest.mark.full
@pytest.mark.parametrize("late", ["", "from adapters import gluon_loader\n"])
def test_slow_body_of_a_loop_is_found(late, tmp_path):
    """Though the script asks for MXNet late: its import is noticed wherever it comes from."""
    text = late + LOOP + "if __name__ == '__main__':\n    train(DataLoader(data, 8), 0.05)"
    assert found_in(doctored(tmp_path, text)) == "the step itself"
