"""What ``SafeSequence`` refuses before any work starts: the argument, the rule, the value."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from tests.keras.py_datasets import Endless
from tests.keras.recording import sequence_of
from tests.keras.samples import numbered

X = np.zeros((40, 1), np.float32)
RANDOM_ACCESS = "source must be an array, a tuple or dict of arrays, or an object with __len__ and"


class Free(keras.utils.PyDataset):
    """Batches that cost nothing."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self._batches = batches

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> Any:
        return X[:4]


def three(sample: Any, rng: Any, more: Any) -> Any:
    return sample


def refused(error: type[Exception], message: str, *arguments: Any, **options: Any) -> Any:
    return pytest.param(error, message, arguments, options, id=message)


@pytest.mark.parametrize(
    ("error", "message", "arguments", "options"),
    [
        refused(ValueError, "batch_size must be >= 1, got 0", X, 0),
        refused(ValueError, "batch_size must be >= 1, got -4", X, -4),
        refused(TypeError, "batch_size must be an integer >= 1, got 2.5", X, 2.5),
        refused(TypeError, "batch_size must be an integer >= 1, got '4'", X, "4"),
        refused(TypeError, "batch_size must be an integer >= 1, got True", X, True),
        refused(TypeError, "batch_size must be an integer >= 1, got None", X, None),
        refused(ValueError, "batch_size must be <= 40", X, 41, drop_remainder=True),
        refused(ValueError, 'workers must be >= 0 or "auto", got -1', X, workers=-1),
        refused(TypeError, 'workers must be an integer >= 0 or "auto", got 1.5', X, workers=1.5),
        refused(TypeError, "or \"auto\", got 'many'", X, workers="many"),
        refused(TypeError, 'or "auto", got None', X, workers=None),
        refused(ValueError, "max_queue_size must be >= 1, got 0", X, max_queue_size=0),
        refused(TypeError, "max_queue_size must be an integer >= 1", X, max_queue_size=1.0),
        refused(ValueError, "seed must be >= 0, got -1", X, seed=-1),
        refused(TypeError, "seed must be an integer >= 0, got None", X, seed=None),
        refused(TypeError, "transform must be callable or None, got 3", X, transform=3),
        refused(TypeError, "batch_transform must be callable", X, batch_transform="resize"),
        refused(ValueError, 'on_error must be "raise", "skip" or callable', X, on_error="ignore"),
        refused(TypeError, "shard must be (index, count), got 3", X, shard=3),
        refused(TypeError, "shard must be (index, count), got (0, 1, 2)", X, shard=(0, 1, 2)),
        refused(ValueError, "0 <= index < count, got (2, 2)", X, shard=(2, 2)),
        refused(ValueError, "0 <= index < count, got (-1, 2)", X, shard=(-1, 2)),
        refused(ValueError, "0 <= index < count, got (0, 0)", X, shard=(0, 0)),
        refused(ValueError, "shard must leave every shard a sample", X, shard=(0, 41)),
        refused(ValueError, "source must hold at least one sample, got 0", X[:0]),
        refused(ValueError, "source must hold at least one sample, got 0", []),
        refused(ValueError, "source must hold at least one array, got ()", ()),
        refused(ValueError, "source must hold at least one array, got {}", {}),
        refused(ValueError, "equal lengths, got source[0]: 40, source[1]: 39", (X, X[:39])),
        refused(ValueError, "equal lengths, got source['a']: 40", {"a": X, "b": X[:39]}),
        refused(ValueError, "source[0]['b']: 39, source[1]: 40", ({"a": X, "b": X[:39]}, X)),
        refused(ValueError, "(x, y, sample_weight), got 4 members", (X, X, X, X)),
        refused(TypeError, "source[1] must be an array with one row per sample", (X, 5)),
        refused(TypeError, "source must be a tuple where it holds the parts", [X, X]),
        refused(TypeError, "(x, y) or (x, y, sample_weight), got a list", [X, X[:, 0], X]),
        refused(ValueError, "np.stack makes one array of a list of samples", ([X[0], X[1]], X)),
        refused(ValueError, "shuffle needs a source with an end", Endless(), shuffle=True),
        refused(TypeError, "shuffle must be True or False, got 'False'", X, shuffle="False"),
        refused(TypeError, "drop_remainder must be True or False", X, drop_remainder="no"),
        refused(TypeError, "use_multiprocessing must be True", X, use_multiprocessing=0.5),
        refused(TypeError, "transform must take (sample) or (sample, rng)", X, transform=three),
        refused(TypeError, "batch_transform must take (batch) or", X, batch_transform=lambda: 3),
        refused(TypeError, "shard must be (index, count), got {0, 2}", X, shard={0, 2}),
        refused(ValueError, "are about single samples", Free(2), drop_remainder=True),
        refused(ValueError, "are about single samples", Free(2), on_error="skip"),
        refused(TypeError, RANDOM_ACCESS, (row for row in X)),
        refused(TypeError, RANDOM_ACCESS, iter(X)),
        refused(TypeError, RANDOM_ACCESS, {1, 2}),
        refused(TypeError, RANDOM_ACCESS, None),
        refused(TypeError, RANDOM_ACCESS, 3),
        refused(TypeError, RANDOM_ACCESS, len),
    ],
)
def test_a_wrong_argument_is_refused_at_once(error, message, arguments, options):
    with pytest.raises(error) as raised:
        SafeSequence(*arguments, **options)
    assert message in str(raised.value)


def test_a_generators_error_says_what_to_do():
    with pytest.raises(TypeError, match=r"got generator: .*turn a generator into a list"):
        SafeSequence(row for row in X)


def test_options_are_named():
    with pytest.raises(TypeError, match="positional"):
        SafeSequence(X, 4, None)


@pytest.mark.parametrize("integer", [np.int64(4), np.int32(4), np.uint8(4)])
def test_integers_may_be_numpys(integer):
    sequence = SafeSequence(
        X, integer, seed=integer, workers=integer, max_queue_size=integer, shard=(0, integer)
    )
    assert len(sequence) == 3


@pytest.mark.parametrize("index", [10, -11, 1000])
def test_a_batch_index_out_of_range_is_refused(index):
    message = rf"batch index must be in range\(-10, 10\), got {index}"
    with pytest.raises(IndexError, match=message):
        sequence_of(10)[index]


@pytest.mark.parametrize("index", [1.5, "a", None, slice(2)])
def test_a_batch_index_is_an_integer(index):
    with pytest.raises(TypeError, match="batch index must be an integer, got"):
        sequence_of(10)[index]


def test_a_negative_epoch_is_refused():
    with pytest.raises(ValueError, match="epoch must be >= 0, got -1"):
        sequence_of(10).set_epoch(-1)


@pytest.mark.parametrize("epoch", [1.5, "a", None])
def test_an_epoch_is_an_integer(epoch):
    with pytest.raises(TypeError, match="epoch must be an integer >= 0, got"):
        sequence_of(10).set_epoch(epoch)


STATES = [{}, None, 3, {"epoch": 1}, [0, 1], {"epoch": 0.7, "batch": 1}, {"epoch": "a", "batch": 1}]


@pytest.mark.parametrize("state", STATES)
def test_what_is_no_state_is_refused(state):
    with pytest.raises(ValueError, match=r"state must be what state_dict\(\) returned, got"):
        sequence_of(10).load_state_dict(state)


@pytest.mark.parametrize("state", [{"epoch": 0, "batch": 10}, {"epoch": -1, "batch": 0}])
def test_a_state_of_another_sequence_is_refused(state):
    with pytest.raises(ValueError, match=r"epoch >= 0 and batch in range\(10\), got"):
        sequence_of(10).load_state_dict(state)


def test_nothing_is_asked_of_a_source_before_it_is_needed():
    class Untouched:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, number: int) -> Any:
            raise AssertionError("asked too soon")

    assert len(SafeSequence(Untouched(), 4)) == 2


def test_the_samples_of_a_source_may_be_anything_keras_takes():
    assert len(SafeSequence(numbered(8)[0], 3)) == 3
