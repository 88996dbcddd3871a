"""A generator of the user's own, in a data set or a transform: no process repeats its draws."""

from __future__ import annotations

import os
import random
import time
import warnings
from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest

from adapters import SafeSequence
from tests.contract import drawing
from tests.contract.drawing import GENERATORS, LENGTH, PLACES, DataSet
from tests.contract.front_ends import (
    EIGHT_THREADS,
    FRONT_ENDS,
    GLUON,
    INLINE,
    KERAS,
    NEEDS_MXNET,
    TWO_PROCESSES,
    TWO_THREADS,
    batches_of,
    loader_of,
    log_lines,
)

BATCH_SIZE = 8
NUMBERS = list(range(LENGTH))
# By what it is known where it is no attribute.
NAMES = {
    "a dict": ["dice", "held"],
    "a closure": ["dice", "transform", "in_a_closure"],
    "an imported module": ["DICE"],
    "three": ["and 2 more"],
    "a layer": ["Layer.layer"],
}
_GENERATORS_QUICK = {"default_rng", "random.Random"}
_PLACES_QUICK = {"a transform", "a list", "a closure"}


def generator_of(kind: str) -> Any:
    """A new generator."""
    if kind == "torch.Generator":
        pytest.importorskip("torch")
    if kind == "keras.random.SeedGenerator":
        pytest.importorskip("keras")
    return GENERATORS[kind]()


def parts_of(place: str, kind: str) -> dict[str, Any]:
    """The data set, and a transform."""
    if place == "an imported module":
        return {"source": NUMBERS, "transform": drawing.of_this_module}
    if place == "three":
        dice = [np.random.default_rng(0), random.Random(0), np.random.RandomState(0)]
        return {"source": np.arange(8), "transform": drawing.InADict(dice)}
    if place == "a layer":
        pytest.importorskip("keras")
        return {"source": np.ones((8, 8, 8, 3), np.float32), "transform": drawing.Layer()}
    dice = generator_of(kind)
    if place == "a data set":
        return {"source": DataSet(dice)}
    return {"source": NUMBERS, "transform": PLACES[place](dice)}


def read(front_end: str, workers: str, epochs: int = 1, **arguments: Any) -> Any:
    """The rows of all samples: number, draw, process."""
    source = arguments.pop("source")
    with loader_of(front_end, source, BATCH_SIZE, workers=workers, **arguments) as loader:
        return np.concatenate(list(batches_of(loader, epochs)))


def _cases() -> Iterator[Any]:
    for kind in GENERATORS:
        for place in ("a data set", *PLACES):
            quick = kind in _GENERATORS_QUICK and place == "a data set"
            quick = quick or (kind == "default_rng" and place in _PLACES_QUICK)
            alone = kind == "default_rng" or place == "a transform"
            if quick or alone:
                yield pytest.param(KERAS, kind, place, marks=[] if quick else [pytest.mark.full])
    for kind in ("default_rng", "random.Random", "RandomState"):
        yield pytest.param(GLUON, kind, "a data set", marks=NEEDS_MXNET)
    # Each process that imports the module has its generator as it is at first.
    yield KERAS, "default_rng", "an imported module"


# --- workers="auto" ---


@pytest.mark.parametrize(
    ("front_end", "place"),
    [
        (KERAS, "a data set"),
        (KERAS, "an imported module"),
        pytest.param(GLUON, "a data set", marks=NEEDS_MXNET),
    ],
)
def test_auto_takes_no_processes(front_end, place):
    """The draws of two epochs are as different from each other as those of one process."""
    rows = read(front_end, "auto", 2, **parts_of(place, "default_rng"))
    assert {*rows[:, 2].tolist()} == {os.getpid()}
    assert len({*rows[:, 1].tolist()}) == 2 * LENGTH


def test_auto_takes_processes_with_the_loaders_generator():
    """The control: the same work takes processes where it has no generator of its own."""
    processes, deadline = {os.getpid()}, time.monotonic() + 60
    with SafeSequence(
        NUMBERS, BATCH_SIZE, transform=drawing.from_the_loader, workers="auto"
    ) as sequence:
        while len(processes) < 2 and time.monotonic() < deadline:
            for batch in sequence:
                processes |= {*batch[:, 2].astype(int).tolist()}
    assert len(processes) > 1


# --- processes that are asked for ---


@pytest.fixture
def said(log: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """All warnings, by the log or by ``warnings``; filled in when the test asks."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        class Said(list[str]):
            def __iter__(self) -> Iterator[str]:
                yield from log_lines(log)
                yield from (str(each.message) for each in caught)

        yield Said()


@pytest.mark.parametrize(
    ("front_end", "kind", "place"),
    [
        *_cases(),
        (KERAS, "", "three"),
        pytest.param(KERAS, "", "a layer", marks=pytest.mark.full),  # Copies have the same seed.
    ],
)
def test_processes_come_with_one_warning(front_end, kind, place, said):
    """It names the attribute, and says what to write instead."""
    arguments = {"workers": TWO_PROCESSES, "batch_size": BATCH_SIZE, **parts_of(place, kind)}
    with loader_of(front_end, **arguments) as loader:
        next(iter(loader))
    (line,) = [line for line in said if "rng" in line]
    assert any(name in line for name in NAMES.get(place, ["dice"]))
    assert "transform(sample, rng)" in line


def test_processes_warn_of_a_scripts_generator(said):
    """What a script defines is sent with its globals."""
    cloudpickle.register_pickle_by_value(drawing)
    try:
        with loader_of(
            KERAS, NUMBERS, BATCH_SIZE, workers=TWO_PROCESSES, transform=drawing.of_this_module
        ) as loader:
            next(iter(loader))
    finally:
        cloudpickle.unregister_pickle_by_value(drawing)
    (line,) = [line for line in said if "rng" in line]
    assert "DICE" in line or "of_this_module" in line


@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS, EIGHT_THREADS])
def test_warning_is_none_without_processes(workers, said):
    rows = read(KERAS, workers, source=DataSet(generator_of("default_rng"), 2 * BATCH_SIZE))
    assert len({*rows[:, 1].tolist()}) == 2 * BATCH_SIZE
    assert not [line for line in said if "rng" in line]


@pytest.mark.parametrize("transform", [None, drawing.from_the_loader])
def test_warning_is_none_without_a_generator(transform, said):
    read(KERAS, TWO_PROCESSES, source=NUMBERS[: 4 * BATCH_SIZE], transform=transform)
    assert not [line for line in said if "rng" in line]


def test_remedy_draws_the_same_with_all_workers():
    """Other numbers in each epoch, and for each sample."""
    few, transform = NUMBERS[: 4 * BATCH_SIZE], drawing.from_the_loader
    inline = read(KERAS, INLINE, 2, source=few, transform=transform)
    processes = read(KERAS, TWO_PROCESSES, 2, source=few, transform=transform)
    assert inline[:, :2].tolist() == processes[:, :2].tolist()
    assert len({*inline[:, 1].tolist()}) == 2 * len(few)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_generators_of_the_user_are_left_inline(front_end):
    """Read inline, the data set's generator is at the place where its draws have left it."""
    data_set = DataSet(np.random.default_rng(0), 2 * BATCH_SIZE)
    read(front_end, INLINE, source=data_set)
    other = np.random.default_rng(0)
    other.random(len(data_set))
    assert data_set.dice.random() == other.random()
