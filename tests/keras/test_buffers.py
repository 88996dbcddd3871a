"""Sequences that use their memory again: every batch is what it was when it was made.

``test_memory_fuzz.py`` has the batches of a loop; here are those that models get.
"""

from __future__ import annotations

import threading
from importlib.util import find_spec
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence, packed, pad
from tests.keras.recording import AUTO, FOUR_THREADS, INLINE, PROCESSES
from tests.memory import FRAMEWORKS, WAYS, Giver, Kind

pytestmark = pytest.mark.one_keras

BATCHES, WIDTH = 10, 16
SHAPE = 4, WIDTH
EXPECTED = np.concatenate([Kind("new", "float32", SHAPE).content(n) for n in range(BATCHES)])
IN_THIS_PROCESS = [
    pytest.param(INLINE, id="inline"),
    pytest.param(FOUR_THREADS, id="threads"),
    pytest.param(AUTO, id="auto"),
]
INSTALLED = [way for way in WAYS if way not in FRAMEWORKS or find_spec(FRAMEWORKS[way][0])]


@pytest.fixture(autouse=True)
def light_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes import Keras without a framework behind it."""
    monkeypatch.setenv("KERAS_BACKEND", "numpy")


class Giving(keras.utils.PyDataset):
    """Batches in memory as ``way`` says, each with its first column as labels."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.giver = Giver(Kind(way, "float32", SHAPE))

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Any:
        x = self.giver.give(index)
        return x, x[:, :1]


class ForEachThread(Giving):
    """Has a buffer for each of its threads."""

    thread_safe = True

    def __init__(self) -> None:
        super().__init__("new")
        self.own = threading.local()

    def __getitem__(self, index: int) -> Any:
        if not hasattr(self.own, "giver"):
            self.own.giver = Giver(Kind("one buffer", "float32", SHAPE))
        x = self.own.giver.give(index)
        return x, x[:, :1]


class Doubled:
    """A ``batch_transform`` that fills a buffer of its own."""

    def __init__(self) -> None:
        self.buffer = np.zeros(SHAPE, np.float32)

    def __call__(self, batch: Any) -> Any:
        return np.multiply(batch[0], 2, out=self.buffer), batch[1]


def echo() -> Any:
    """A model that predicts what it is given."""
    return keras.Sequential([keras.Input((WIDTH,)), keras.layers.Identity()])


@pytest.mark.parametrize("workers", IN_THIS_PROCESS)
def test_predict_sees_every_batch_as_it_was(workers):
    model = echo()
    for way in INSTALLED:
        with SafeSequence(Giving(way), **workers) as sequence:
            predicted = model.predict(sequence, verbose=0)
        np.testing.assert_array_equal(predicted, EXPECTED, way)


@pytest.mark.one_backend
def test_a_buffer_of_each_thread_is_none_of_another_batch():
    with SafeSequence(ForEachThread(), **FOUR_THREADS) as sequence:
        kept = list(sequence)
        predicted = echo().predict(sequence, verbose=0)
    np.testing.assert_array_equal(np.concatenate([x for x, _ in kept]), EXPECTED)
    np.testing.assert_array_equal(predicted, EXPECTED)


@pytest.mark.one_backend
@pytest.mark.parametrize("workers", [*IN_THIS_PROCESS, pytest.param(PROCESSES, id="processes")])
def test_a_batch_transform_with_a_buffer_of_its_own_changes_no_other_batch(workers):
    with SafeSequence(Giving("a ring"), batch_transform=Doubled(), **workers) as sequence:
        kept = list(sequence)
        predicted = echo().predict(sequence, verbose=0)
    np.testing.assert_array_equal(np.concatenate([x for x, _ in kept]), 2 * EXPECTED)
    np.testing.assert_array_equal(predicted, 2 * EXPECTED)


@pytest.mark.parametrize("workers", IN_THIS_PROCESS)
def test_fit_trains_on_every_batch_as_it_was(workers):
    class Summing(keras.Model):  # type: ignore[misc]
        """Its loss is the mean of what it was given."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = self.add_weight(shape=(), initializer="zeros")

        def call(self, x: Any) -> Any:
            return keras.ops.mean(x, axis=-1, keepdims=True) + 0 * self.weight

    model = Summing()
    model.compile(
        "sgd", loss=lambda y, p: keras.ops.mean(p) + 0 * keras.ops.mean(y), run_eagerly=False
    )
    with SafeSequence(Giving("one buffer"), **workers) as sequence:
        history = model.fit(sequence, epochs=2, shuffle=False, verbose=0).history
    np.testing.assert_allclose(history["loss"], [EXPECTED.mean()] * 2, rtol=1e-5)


def test_a_batch_that_is_written_to_by_its_user_changes_nothing_for_the_sequence():
    source = Giving("one buffer")
    with SafeSequence(source, **INLINE) as sequence:
        for x, _ in sequence:
            x[...] = -1
        assert source.giver.kept["one"].min() >= 0


# --- samples that are collated together ---


def refilled(shape: Any) -> Any:
    """A function that fills its one buffer with each sample, and returns it in that shape."""
    buffer = np.empty(2)
    kept = {"array": buffer, "tuple": (buffer, 0), "dict": {"x": buffer[:]}}[shape]

    def fill(number: Any) -> Any:
        buffer[:] = number
        return kept

    return fill


class Refilling:
    """A data set that is such a function."""

    def __init__(self, shape: str) -> None:
        self.fill = refilled(shape)

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> Any:
        return self.fill(number)


def leaf_of(batch: Any) -> Any:
    """The array in such a batch, or sample."""
    if isinstance(batch, np.ndarray):
        return batch
    return batch["x"] if isinstance(batch, dict) else batch[0]


def stacked(samples: Any) -> Any:
    return np.stack([leaf_of(sample) for sample in samples])


@pytest.mark.one_backend
@pytest.mark.parametrize("workers", IN_THIS_PROCESS)
@pytest.mark.parametrize("shape", ["array", "tuple", "dict"])
@pytest.mark.parametrize("collate", [None, stacked, pad()], ids=["none", "users", "pad"])
@pytest.mark.parametrize("made_by", ["source", "transform", "on_error"])
def test_a_batch_holds_each_sample_as_it_was(workers, shape, collate, made_by):
    def failing(number: Any) -> Any:
        raise ValueError

    fill, options = refilled(shape), dict(workers, collate=collate)
    source: Any = Refilling(shape) if made_by == "source" else np.arange(6.0)
    if made_by == "transform":
        options["transform"] = fill
    elif made_by == "on_error":
        options |= {"transform": failing, "on_error": lambda error, number: fill(number)}
    with SafeSequence(source, 3, **options) as sequence:
        found = [leaf_of(batch)[:, 0].tolist() for batch in sequence]
    assert found == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.one_backend
def test_rows_that_are_packed_hold_each_sequence_as_it_was():
    rows = SafeSequence(packed(Refilling("array"), 6, lengths=[2] * 6), 2, **INLINE)
    assert rows[0]["tokens"].tolist() == [[0, 0, 1, 1, 2, 2], [3, 3, 4, 4, 5, 5]]


@pytest.mark.one_backend
def test_a_transforms_own_arrays_are_collated_without_a_copy():
    made, same = [], []

    def transform(sample: Any) -> Any:
        new = np.array([sample]), np.array([1])
        made.extend(map(id, new))
        return new

    def collate(samples: Any) -> Any:
        same.append([id(leaf) for sample in samples for leaf in sample] == made[-6:])
        return np.stack([x for x, _ in samples])

    for _ in SafeSequence(np.arange(90.0), 3, transform=transform, collate=collate, **INLINE):
        pass
    assert same[-8:] == [True] * 8  # The first 64 samples are looked at, which refers to them.
