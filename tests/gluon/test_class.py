"""``DataLoader``: signature, subclasses, ``isinstance``, the Estimator."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.contrib.estimator import Estimator
from mxnet.gluon.data import ArrayDataset
from mxnet.gluon.data.vision.transforms import ToTensor

import adapters
from adapters import gluon_loader
from adapters.gluon import DataLoader
from tests.gluon.data_sets import values
from tests.gluon.executors import PROCESSES, THREADS, arguments_of, every_kind, opened

NUMBERS = np.arange(10)
_FIRST = ["dataset", "batch_size", "shuffle", "sampler", "last_batch", "batch_sampler"]
_SECOND = [*_FIRST, "batchify_fn", "num_workers"]
_WITH_POOL = [*_SECOND, "pin_memory", "pin_device_id", "prefetch", "thread_pool"]
_TAKEN = [
    (
        _SECOND,
        "1.0.0 1.0.0.post0 1.0.0.post1 1.0.0.post2 1.0.0.post3 1.0.0.post4 1.1.0 1.1.0.post0 "
        "1.2.0 1.2.1 1.2.1.post0 1.2.1.post1",
    ),
    ([*_SECOND, "pin_memory"], "1.3.0 1.3.0.post0 1.3.1"),
    (_WITH_POOL, "1.4.1 1.5.0 1.5.1 1.5.1.post0"),
    ([*_WITH_POOL, "timeout"], "1.6.0 1.7.0.post1 1.7.0.post2 1.8.0 1.8.0.post0"),
    ([*_WITH_POOL, "timeout", "auto_reload"], "1.9.0 1.9.1"),
]
# What each release takes, in its order.
SIGNATURES = {release: names for names, releases in _TAKEN for release in releases.split()}
# These had no pin_device_id, and what comes behind it one place sooner.
WITHOUT_A_DEVICE = ["1.4.0", "1.4.0.post0"]
# What came with MXNet's own 1.9. The argument is gone here: a pass starts with its first batch.
RELOADING = {"auto_reload", "clean", "refresh"}
# Ours chooses these by itself.
OTHER_DEFAULTS = {"num_workers", "pin_memory", "thread_pool"}


def positional(function: Any) -> list[inspect.Parameter]:
    parameters = inspect.signature(function).parameters.values()
    return [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]


def test_the_signature_is_that_of_the_installed_mxnet():
    theirs = positional(mx.gluon.data.DataLoader)
    ours = positional(DataLoader)
    names = [each.name for each in theirs]
    assert names in SIGNATURES.values()
    names = [each for each in names if each != "auto_reload"]
    assert [each.name for each in ours] == names
    differ = {own.name for own, each in zip(ours, theirs) if own.default != each.default}
    assert differ == OTHER_DEFAULTS & set(names)


@pytest.mark.parametrize("release", SIGNATURES)
def test_positional_arguments_mean_what_they_meant_in_each_release(release):
    """Every 1.x with a wheel.

    To look it up again: ``pip download --no-deps mxnet==RELEASE``, and there, as in a zip archive,
    ``DataLoader.__init__`` of ``mxnet/gluon/data/dataloader.py``. ``pip index versions mxnet``
    lists the releases.
    """
    names = [each.name for each in positional(DataLoader)]
    taken = [each for each in SIGNATURES[release] if each != "auto_reload"]
    assert names[: len(taken)] == taken
    assert names == SIGNATURES["1.8.0"]


@pytest.mark.parametrize("release", WITHOUT_A_DEVICE)
def test_positional_arguments_mean_what_they_meant_before_there_was_a_device(release):
    """As far as ``pin_memory``; the two that came behind it go by keyword."""
    assert release not in SIGNATURES
    names = [each.name for each in positional(DataLoader)]
    before = names.index("pin_device_id")
    assert names[:before] == SIGNATURES["1.3.1"]
    assert names[before + 1 : before + 3] == ["prefetch", "thread_pool"]


def test_what_is_our_own_goes_by_keyword_only():
    parameters = inspect.signature(gluon_loader).parameters.values()
    own = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    assert own == [
        *("ctx", "seed", "shard", "on_error", "batch_transform", "weights", "bucket_by"),
        "thread_safe",
    ]


def test_the_public_names_are_mxnets_and_those_of_the_contract():
    theirs = {*dir(mx.gluon.data.DataLoader(NUMBERS, 2)), *RELOADING}
    with DataLoader(NUMBERS, 2) as loader:
        list(loader)
        own = set(dir(loader)) - theirs
    assert {name for name in own if not name.startswith("_")} == {
        "close",
        "epoch",
        "explain",
        "load_state_dict",
        "peek",
        "replay",
        "set_epoch",
        "state_dict",
        "waits",
    }


def test_all_of_mxnets_arguments_by_position():
    arguments = [NUMBERS, 4, False, None, "keep", None, None, 0, False, 0, None, False, 120]
    with DataLoader(*arguments) as loader:
        assert values(loader) == values(mx.gluon.data.DataLoader(*arguments))


def test_refreshing_a_loader_changes_nothing():
    with DataLoader(NUMBERS, 4, num_workers=0) as loader:
        loader.refresh()
        first = values(loader)
        loader.clean()
        assert values(loader) == first


def test_gluon_loader_can_stand_for_mxnets_class():
    assert isinstance(gluon_loader(NUMBERS, 2, num_workers=0), gluon_loader)
    assert isinstance(gluon_loader(NUMBERS, 2, num_workers=0), DataLoader)
    assert isinstance(gluon_loader(NUMBERS, 2, num_workers=0), mx.gluon.data.DataLoader)
    assert not isinstance(mx.gluon.data.DataLoader(NUMBERS, 2), DataLoader)
    assert adapters.gluon_loader is gluon_loader


class Doubled(DataLoader):
    """As somebody would write it for MXNet's class."""

    def __init__(self, dataset: Any, factor: int, batch_size: int | None = None, **rest: Any):
        self.before = "set before"
        super().__init__(dataset, batch_size=batch_size, **rest)
        self._factor = factor

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield batch * self._factor

    def __len__(self) -> int:
        return 2 * super().__len__()


@every_kind
def test_a_subclass_may_change_what_a_loop_is_given(executor):
    with Doubled(NUMBERS, 2, 4, **arguments_of(executor)) as loader:
        assert values(loader) == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18]]
        assert values(loader) == values(loader)
        assert (len(loader), loader.before) == (6, "set before")
        assert isinstance(loader, gluon_loader)


def test_a_subclass_may_make_its_batches_by_itself():
    class Own(DataLoader):
        def __iter__(self) -> Iterator[Any]:
            for batch in self._batch_sampler:
                yield self._batchify_fn([self._dataset[index] for index in batch])

    assert values(Own(NUMBERS, 4, num_workers=0)) == values(gluon_loader(NUMBERS, 4))


def test_a_subclass_whose_constructor_raises_ends_without_a_word(capfd):
    class Broken(DataLoader):
        def __init__(self) -> None:
            raise KeyError("no data")

    with pytest.raises(KeyError):
        Broken()
    with pytest.raises(TypeError):
        DataLoader(None, 4)
    assert capfd.readouterr().err == ""


def test_a_twin_is_of_the_same_class_and_draws_nothing_of_the_users():
    with Doubled(NUMBERS, 3, 10, shuffle=True, num_workers=0) as loader:
        before = np.random.get_state(legacy=False)
        with loader._twin() as twin:
            assert sorted(values(twin)[0]) == (NUMBERS * 3).tolist()
        np.testing.assert_equal(np.random.get_state(legacy=False), before)
        assert len(values(loader)[0]) == 10


# --- the Estimator ---

SIZE = 24


def images() -> Any:
    """Bright ones and dark ones, in turn."""
    labels = np.arange(SIZE) % 2
    pixels = np.broadcast_to(labels[:, None, None, None] * 255, (SIZE, 4, 4, 1)).astype(np.uint8)
    return ArrayDataset(mx.nd.array(pixels, dtype="uint8"), labels.astype(np.float32))


def small(dark: Any) -> Any:
    """As float32 in [0, 1], a sample at a time."""
    return dark.astype("float32").transpose((2, 0, 1)) / 255


@pytest.mark.parametrize(
    ("executor", "transform"), [("inline", small), (THREADS, ToTensor()), (PROCESSES, small)]
)
def test_fit_and_evaluate_take_a_loader_for_training_and_validation(executor, transform):
    net = mx.gluon.nn.Dense(2)
    net.initialize(mx.init.One())
    metric = mx.metric.Accuracy()
    estimator = Estimator(
        net,
        mx.gluon.loss.SoftmaxCrossEntropyLoss(),
        metric,
        trainer=mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}),
        context=mx.cpu(0),
    )
    estimator.logger.setLevel(logging.ERROR)
    data = images().transform_first(transform)
    with (
        opened(data, executor, shuffle=True, seed=1) as train,
        opened(data, executor, 8) as validation,
    ):
        assert isinstance(train, mx.gluon.data.DataLoader)
        estimator.fit(train, val_data=validation, epochs=3)
        assert estimator.max_epoch == 3
        estimator.evaluate(validation)
    scores = {each.get()[0]: each.get()[1] for each in estimator.val_metrics}
    assert scores["validation accuracy"] == 1.0
