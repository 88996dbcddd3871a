"""``adapters.diagnose`` and ``adapters doctor`` of Gluon's loaders."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset, DataLoader, RandomSampler
from mxnet.gluon.data.vision import transforms
from mxnet.gluon.data.vision.transforms import ToTensor

from adapters import diagnose, gluon_loader
from adapters.diagnosis import Diagnosis
from adapters.diagnosis.sweep import Setting
from adapters.gluon.diagnosed import FRONT_END
from tests.cli.scripts import doctored, found_in
from tests.diagnosis import planted
from tests.diagnosis.planted import BATCH_SIZE, SECONDS, SIZE, Numbers, Waiting, quick_step
from tests.gluon.data_sets import Computed


def numbers() -> Computed:
    """As a Gluon data set, which can be transformed."""
    return Computed(Numbers().__getitem__, SIZE)


def burning(*sample: Any) -> Any:
    planted.burn(planted.SLOW)
    return sample


def slow_batchify(samples: list[Any]) -> Any:
    planted.burn(BATCH_SIZE * planted.SLOW)
    return mx.nd.array(np.stack([sample[0] for sample in samples]))


def found(data: Any, **options: Any) -> Diagnosis:
    options = {"num_workers": 0, "batch_size": BATCH_SIZE, **options}
    with gluon_loader(data, **options) as loader:
        return diagnose(loader, quick_step, seconds=SECONDS)


def batches_of(loader: Any) -> list[list[float]]:
    return [batch[-1].asnumpy().ravel().tolist() for batch in loader]


# --- planted bottlenecks ---


WORDS = [["one", "three"]]
BATCHES = [[0, 3, -1, 5], (1, 2, 4, 7), np.array([9, 8])]


def named(name: str) -> Any:
    """A sample that is named by a word."""
    planted.slow_step(None)
    return np.float32([len(name)])


def resized() -> Any:
    images = ArrayDataset(mx.nd.zeros((SIZE, 32, 32, 3), dtype="uint8"), np.arange(SIZE))
    return images.transform_first(transforms.Compose([transforms.Resize(64), ToTensor()]))


@pytest.mark.parametrize(
    ("make", "options", "expected"),
    [
        (resized, {}, "transforms"),
        (lambda: numbers().transform(burning), {}, "transforms"),
        (Waiting, {"batch_size": None, "batch_sampler": BATCHES}, "storage"),
        (Waiting, {"sampler": RandomSampler(SIZE)}, "storage"),
        (lambda: Computed(named, 2), {"batch_size": None, "batch_sampler": WORDS}, "storage"),
    ],
    ids=["a stage", "a transform", "a batch sampler", "a sampler", "names"],
)
def test_bottleneck_is_found(make, options, expected):
    diagnosis = found(make(), **options)
    assert diagnosis.bottleneck == expected
    mx.nd.waitall()


def test_mxnets_own_loader_is_examined_as_ours():
    """With its workers and its batchify."""
    options = {"batchify_fn": slow_batchify, "num_workers": 1, "thread_pool": True}
    theirs = DataLoader(numbers(), BATCH_SIZE, **options)
    diagnosis = diagnose(theirs, quick_step, seconds=SECONDS)
    theirs._worker_pool.terminate()
    theirs._worker_pool.join()
    assert diagnosis.bottleneck == "collation"
    assert diagnosis.replaced == "gluon_loader in the place of DataLoader, same arguments"
    assert diagnosis.workers.count == 1


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


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        (Setting("auto", 0), 'num_workers="auto")'),
        (Setting("inline", 0), "num_workers=0)"),
        (Setting("threads", 4), "num_workers=4, thread_pool=True)"),
        (Setting("processes", 2), "num_workers=2, thread_pool=False)"),
    ],
)
def test_line_can_be_pasted(setting, line):
    found = FRONT_END.call(setting.kind, setting.argument)
    assert found == f"gluon_loader(..., {line}"


LOOP = """
import time
from adapters.gluon import gluon_loader, import_mxnet

mx = import_mxnet()
import numpy as np
from mxnet.gluon.data import ArrayDataset, DataLoader

class Slow(ArrayDataset):
    def __getitem__(self, number):
        time.sleep(0.004)
        return super().__getitem__(number)

def train(kind, seconds):
    for epoch in range(1000):
        for x, y in DataLoader(kind(np.zeros((64, 3), "float32"), np.arange(64)), 8):
            time.sleep(seconds)
            (2 * x).wait_to_read()
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "seconds", "expected"),
    [("Slow", 0, "storage: fetching the samples"), ("ArrayDataset", 0.05, "the step itself")],
)
def test_bottleneck_of_a_script_is_found(kind, seconds, expected, tmp_path):
    """Though it asks for MXNet late: its import is noticed wherever it comes from."""
    text = f"from adapters import gluon_loader\n{LOOP}train({kind}, {seconds})\nprint('went on')"
    process = doctored(tmp_path, text)
    assert found_in(process) == expected
    assert "went on" not in process.stdout
    assert ("gluon_loader in the place of DataLoader" in process.stdout) == (kind == "Slow")
