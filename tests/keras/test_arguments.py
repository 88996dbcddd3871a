"""Arguments, states and indices that are refused at once, attributes, and ``explain``."""

from __future__ import annotations

import inspect
from typing import Any

import keras
import numpy as np
import pytest

from adapters import Blocks, SafeSequence, pad, split
from tests.keras.py_datasets import Endless, Numbered
from tests.keras.recording import AUTO, PROCESSES, sequence_of
from tests.keras.samples import numbered

X = np.zeros((40, 1), np.float32)
RANDOM_ACCESS = "source must be an array, a tuple or dict of arrays, or an object with __len__ and"


def three(sample: Any, rng: Any, more: Any) -> Any:
    return sample


def refused(error: type[Exception], message: str, *arguments: Any, **options: Any) -> Any:
    return pytest.param(error, message, arguments, options, id=message)


@pytest.mark.parametrize(
    ("error", "message", "arguments", "options"),
    [
        refused(ValueError, "batch_size must be >= 1, got 0", X, 0),
        refused(TypeError, "batch_size must be an integer >= 1, got", X, np.True_),
        refused(ValueError, "batch_size must be <= 40", X, 41, drop_remainder=True),
        refused(ValueError, 'workers must be >= 0 or "auto", got -1', X, workers=-1),
        refused(TypeError, "or \"auto\", got 'many'", X, workers="many"),
        refused(ValueError, "max_queue_size must be >= 1, got 0", X, max_queue_size=0),
        refused(ValueError, "seed must be >= 0, got -1", X, seed=-1),
        refused(TypeError, "seed must be an integer >= 0, got None", X, seed=None),
        refused(TypeError, "transform must be callable or None, got 3", X, transform=3),
        refused(TypeError, "batch_transform must be callable", X, batch_transform="resize"),
        refused(TypeError, "collate must be callable or None", X, collate="pad"),
        refused(ValueError, 'on_error must be "raise", "skip" or callable', X, on_error="ignore"),
        refused(TypeError, "on_error must take (exception, sample_number)", X, on_error=len),
        refused(TypeError, "shard must be (index, count), got 3", X, shard=3),
        refused(TypeError, "shard must be (index, count), got {0, 2}", X, shard={0, 2}),
        refused(TypeError, "got 'Auto'; or \"auto\"", X, shard="Auto"),
        refused(ValueError, "0 <= index < count, got (2, 2)", X, shard=(2, 2)),
        refused(ValueError, "shard must leave every shard a sample", X, shard=(0, 41)),
        refused(ValueError, "source must hold at least one sample, got 0", X[:0]),
        refused(ValueError, "source must hold at least one array, got {}", {}),
        refused(ValueError, "equal lengths, got source[0]: 40, source[1]: 39", (X, X[:39])),
        refused(ValueError, "source[0]['b']: 39, source[1]: 40", ({"a": X, "b": X[:39]}, X)),
        refused(ValueError, "(x, y, sample_weight), got 4 members", (X, X, X, X)),
        refused(TypeError, "source[1] must be an array with one row per sample", (X, 5)),
        refused(TypeError, "samples must have no masked arrays", (np.ma.masked_equal(X, 0), X)),
        refused(TypeError, "source must be a tuple where it holds the parts", [X, X]),
        refused(ValueError, "np.stack makes one array of a list of samples", ([X[0], X[1]], X)),
        refused(TypeError, "shuffle must be True or False, got 'block'; \"b", X, shuffle="block"),
        refused(ValueError, "shuffle needs a source with an end", Endless(), shuffle=True),
        refused(ValueError, "shuffle and weights must not", X, shuffle=Blocks(9), weights=X[:, 0]),
        refused(ValueError, "weights must have one number for each of", X, weights=[1.0]),
        refused(TypeError, "drop_remainder must be True or False", X, drop_remainder="no"),
        refused(TypeError, "use_multiprocessing must be True", X, use_multiprocessing=0.5),
        refused(TypeError, "transform must take (sample) or (sample, rng)", X, transform=three),
        refused(TypeError, "batch_transform must take (batch) or", X, batch_transform=lambda: 3),
        refused(ValueError, "are about single samples", Numbered(2), drop_remainder=True),
        refused(ValueError, "are about single samples", Numbered(2), on_error="skip"),
        refused(ValueError, "(Numbered): use batch_transform", Numbered(2), transform=list),
        refused(ValueError, "collate makes batches of single samples", Numbered(2), collate=list),
        refused(TypeError, "turn a generator into a list", (row for row in X)),
        refused(TypeError, RANDOM_ACCESS, {1, 2}),
        refused(TypeError, "positional", X, 4, None),
    ],
)
def test_argument_refused(error, message, arguments, options):
    with pytest.raises(error) as raised:
        SafeSequence(*arguments, **options)
    assert message in str(raised.value)


def test_integers_of_numpy():
    four = np.uint8(4)
    sequence = SafeSequence(X, four, seed=four, workers=four, max_queue_size=four, shard=(0, four))
    assert len(sequence) == 3


NO_STATE = r"state must be what state_dict\(\) returned, got"
OTHERS_STATE = r"epoch >= 0 and batch in range\(10\), got"


@pytest.mark.parametrize(
    ("call", "value", "error", "message"),
    [
        ("__getitem__", 10, IndexError, r"batch index must be in range\(-10, 10\), got 10"),
        ("__getitem__", -11, IndexError, r"batch index must be in range\(-10, 10\), got -11"),
        ("__getitem__", slice(2), TypeError, "batch index must be an integer, got"),
        ("set_epoch", -1, ValueError, "epoch must be >= 0, got -1"),
        ("set_epoch", 1.5, TypeError, "epoch must be an integer >= 0, got"),
        ("load_state_dict", None, ValueError, NO_STATE),
        ("load_state_dict", {"epoch": 0.7, "batch": 1}, ValueError, NO_STATE),
        ("load_state_dict", {"epoch": 1}, ValueError, NO_STATE),
        ("load_state_dict", {"epoch": 0, "batch": 10}, ValueError, OTHERS_STATE),
        ("load_state_dict", {"epoch": -1, "batch": 0}, ValueError, OTHERS_STATE),
    ],
)
def test_value_refused(call, value, error, message):
    with pytest.raises(error, match=message):
        getattr(sequence_of(10), call)(value)


def test_source_is_not_asked_too_soon():
    class Untouched(list):
        def __getitem__(self, number: Any) -> Any:
            raise AssertionError("asked too soon")

    assert len(SafeSequence(Untouched(range(8)), 4)) == 2


# --- attributes ---


@pytest.mark.parametrize("options", [PROCESSES, AUTO])
def test_attributes(options):
    sequence = sequence_of(2, max_queue_size=7, **options)
    found = sequence.workers, sequence.use_multiprocessing, sequence.max_queue_size
    assert found == (options["workers"], options.get("use_multiprocessing", False), 7)


@pytest.mark.parametrize("name", inspect.signature(SafeSequence).parameters)
def test_attributes_are_fixed(name):
    message = rf"{name} is fixed .*make another one with SafeSequence\(\.\.\., {name}=4\)"
    with sequence_of(2) as sequence, pytest.raises(AttributeError, match=message):
        setattr(sequence, name, 4)


def test_subclass_may_have_attributes_of_these_names():
    class Own(SafeSequence):
        seed = 3

        def __init__(self) -> None:
            self.source = 4
            super().__init__(X, self.source)
            self.transform = None

    assert len(Own()) == 10


PUBLIC = "close epoch explain load_state_dict peek replay set_epoch state_dict waits"


def test_public_names():
    own = set(dir(SafeSequence)) - set(dir(keras.utils.PyDataset))
    assert " ".join(sorted(name for name in own if not name.startswith("_"))) == PUBLIC


# --- explain ---


def explained(sequence: SafeSequence, capsys: pytest.CaptureFixture[str]) -> list[str]:
    with sequence:
        sequence.explain()
    return capsys.readouterr().out.splitlines()


def test_explain(capsys):
    collated = SafeSequence([[1]], 1, collate=pad(0, 8), workers=0)
    assert "collate pad(0, 8" in "\n".join(explained(collated, capsys))
    assert "shard: 1 of 2" in explained(SafeSequence(Endless(), shard=(1, 2)), capsys)
    for order in ({"shuffle": "blocks"}, {"weights": np.ones(40)}, {"bucket_by": np.arange(40)}):
        assert "order: " in "\n".join(explained(SafeSequence(X, 4, **order), capsys))
    half = SafeSequence(split((X, X), [0.5])[0], 4)
    assert "20 of 40: arrays, gathered a batch at a time" in explained(half, capsys)[0]
    for workers, said in ((AUTO, "inline, with one thread"), (PROCESSES, "2 processes")):
        measured = sequence_of(20, **workers)
        list(measured)
        assert explained(measured, capsys)[-1].startswith(f"workers: {said}")
    sequence = SafeSequence(numbered(8), 2, transform=tuple, shard=(1, 2), workers=2)
    assert explained(sequence, capsys) == [
        "source: arrays, gathered a batch at a time",
        "transform tuple: a sample at a time",
        "shard: 1 of 2, 4 of 8",
        "workers: 2 threads",
    ]


def test_explain_one_thread_at_a_time(capsys):
    declared = Numbered(2)
    declared.thread_safe = True
    lines = explained(SafeSequence(Numbered(2), workers=8), capsys)
    expected = "only one of them is busy at a time, as source is not declared thread_safe"
    assert lines[0] == "source: whole batches, asked for by number"
    assert lines[-1] == f"workers: 8 threads; {expected}"
    assert "busy" not in explained(SafeSequence(declared, workers=8), capsys)[-1]
    assert "busy" not in explained(SafeSequence(Numbered(2), workers=1), capsys)[-1]
