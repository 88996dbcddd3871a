"""A generator of the user's own, in a data set or a transform: no process repeats its draws."""

from __future__ import annotations

import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest

from adapters import SafeSequence
from tests.contract import drawing
from tests.contract.drawing import LENGTH, DataSet, Transform
from tests.contract.front_ends import batches_of, loader_of, log_lines

BATCH_SIZE = 8
NUMBERS = list(range(LENGTH))


def of_torch() -> Any:
    return pytest.importorskip("torch").Generator().manual_seed(0)


def of_keras() -> Any:
    return pytest.importorskip("keras").random.SeedGenerator(0)


GENERATORS: dict[str, Callable[[], Any]] = {
    "default_rng": lambda: np.random.default_rng(0),
    "RandomState": lambda: np.random.RandomState(0),
    "random.Random": lambda: random.Random(0),
    "torch.Generator": of_torch,
    "keras.random.SeedGenerator": of_keras,
    "a subclass": lambda: drawing.Lehmer(0),
}
PLACES: dict[str, Callable[[Any], Any]] = {
    "a transform": Transform,
    "a list": lambda dice: Transform([len, Transform(dice)], lambda held: held[1].dice),
    "a dict": lambda dice: Transform({"dice": dice}, lambda held: held["dice"]),
    "a closure": drawing.in_a_closure,
}
# By what it is known where it is no attribute.
NAMES = {
    "a closure": ["dice", "transform", "in_a_closure"],
    "an imported module": ["DICE"],
    "three": ["and 2 more"],
    "a layer": ["Layer.layer"],
}


def parts_of(place: str, kind: str) -> dict[str, Any]:
    if place == "an imported module":
        return {"source": NUMBERS, "transform": drawing.of_this_module}
    if place == "three":
        dice = [np.random.default_rng(0), random.Random(0), np.random.RandomState(0)]
        return {"source": np.arange(8), "transform": Transform(dice, lambda held: held[0])}
    if place == "a layer":
        pytest.importorskip("keras")
        return {"source": np.ones((8, 8, 8, 3), np.float32), "transform": drawing.Layer()}
    dice = GENERATORS[kind]()
    if place == "a data set":
        return {"source": DataSet(dice)}
    return {"source": NUMBERS, "transform": PLACES[place](dice)}


def read(front_end: str, workers: str, epochs: int = 1, **arguments: Any) -> Any:
    source = arguments.pop("source")
    with loader_of(front_end, source, BATCH_SIZE, workers=workers, **arguments) as loader:
        return np.concatenate(list(batches_of(loader, epochs)))


# --- workers="auto" ---


@pytest.mark.parametrize(
    ("front_end", "place"),
    [("keras", "a data set"), ("keras", "an imported module"), ("gluon", "a data set")],
)
def test_auto_takes_no_processes(front_end, place):
    """The draws of two epochs are as different from each other as those of one process."""
    rows = read(front_end, "auto", 2, **parts_of(place, "default_rng"))
    assert {*rows[:, 2].tolist()} == {os.getpid()}
    assert len({*rows[:, 1].tolist()}) == 2 * LENGTH


def test_auto_takes_no_processes_for_a_data_set_that_counts(front_end):
    """It gives its next sample, whichever it is asked for; a process would have its own count."""

    class Next(list):
        def __getitem__(self, number: int) -> Any:
            time.sleep(drawing.WAIT_SECONDS)
            self.given += 1
            return np.array([self.given])

    (source := Next([None] * LENGTH)).given = 0
    rows = read(front_end, "auto", 3, source=source)
    assert rows[:, 0].tolist() == [*range(1, 3 * LENGTH + 1)]


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
def said(log: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What was said of generators since, by the log or by ``warnings``."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: [
            line
            for line in (*log_lines(log), *(str(each.message) for each in caught))
            if "rng" in line
        ]


@pytest.mark.parametrize(
    ("front_end", "kind", "place"),
    [
        *(("keras", "default_rng", place) for place in ("a data set", "a list", "a closure")),
        ("keras", "random.Random", "a transform"),
        ("keras", "a subclass", "a data set"),
        ("gluon", "RandomState", "a data set"),
        # Each process that imports the module has its generator as it is at first.
        ("keras", "", "an imported module"),
        ("keras", "", "three"),
        pytest.param("keras", "default_rng", "a dict", marks=pytest.mark.full),
        # Each of the processes imports the framework.
        pytest.param("keras", "torch.Generator", "a transform", marks=pytest.mark.full),
        pytest.param("keras", "keras.random.SeedGenerator", "a transform", marks=pytest.mark.full),
        pytest.param("keras", "", "a layer", marks=pytest.mark.full),  # Copies have the same seed.
    ],
)
def test_processes_come_with_one_warning(front_end, kind, place, said):
    """It names the attribute, and says what to write instead."""
    arguments = {"workers": "2 processes", "batch_size": BATCH_SIZE, **parts_of(place, kind)}
    with loader_of(front_end, **arguments) as loader:
        next(iter(loader))
    (line,) = said()
    assert any(name in line for name in NAMES.get(place, ["dice"]))
    assert "transform(sample, rng)" in line


def test_processes_warn_of_a_scripts_generator(said):
    """What a script defines is sent with its globals."""
    cloudpickle.register_pickle_by_value(drawing)
    try:
        with loader_of(
            "keras", NUMBERS, BATCH_SIZE, workers="2 processes", transform=drawing.of_this_module
        ) as loader:
            next(iter(loader))
    finally:
        cloudpickle.unregister_pickle_by_value(drawing)
    (line,) = said()
    assert "DICE" in line or "of_this_module" in line


@pytest.mark.parametrize("workers", ["inline", "8 threads"])
def test_warning_is_none_without_processes(workers, said):
    rows = read("keras", workers, source=DataSet(np.random.default_rng(0), 2 * BATCH_SIZE))
    assert len({*rows[:, 1].tolist()}) == 2 * BATCH_SIZE
    assert not said()


def test_warning_is_none_without_a_generator(said):
    few = NUMBERS[: 4 * BATCH_SIZE]
    read("keras", "2 processes", source=few, transform=drawing.from_the_loader)
    assert not said()


def test_generators_of_the_user_are_left_inline(front_end):
    """Read inline, the data set's generator is at the place where its draws have left it."""
    data_set = DataSet(np.random.default_rng(0), 2 * BATCH_SIZE)
    read(front_end, "inline", source=data_set)
    other = np.random.default_rng(0)
    other.random(len(data_set))
    assert data_set.dice.random() == other.random()
