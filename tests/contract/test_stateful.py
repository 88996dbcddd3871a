"""Data sets with a state give the right samples with every kind of workers, on both front ends.

Each is read as it is, without a declaration: in two orders, sample by sample against what it must
hold.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import split
from tests.contract import stateful
from tests.contract.front_ends import batches_of, loader_of
from tests.contract.stateful import LENGTH, content

BATCH_SIZE = 4
NUMBERS = list(range(LENGTH))
THREADS = ("2 threads", "8 threads")
_OTHER_THREAD = (sqlite3.ProgrammingError, RuntimeError)


class Half(stateful.Stateful):
    """One half of another data set, whose handle both use."""

    def prepare(self, folder: Any) -> None:
        self.inner, self.start = folder

    def __len__(self) -> int:
        return LENGTH // 2

    def __getitem__(self, number: int) -> Any:
        return self.inner[self.start + number]


def halves(file: stateful.File) -> list[Half]:
    return [Half((file, 0)), Half((file, LENGTH // 2))]


# Each makes the source, or the source and further arguments of ``loader_of``.
CASES: dict[str, Callable[[Path], Any]] = {
    "a file": stateful.File,
    "a file that pickles": stateful.PicklableFile,
    "sqlite": stateful.Database,
    "one buffer": stateful.Buffer,
    "a transform with a buffer": lambda folder: (NUMBERS, {"transform": stateful.Transform()}),
}


def undeclared(front_end: str, workers: str) -> dict[str, Any]:
    """Arguments that leave user code undeclared: Gluon's ``thread_pool=True`` declares it."""
    return {"thread_safe": False} if front_end == "gluon" and workers in THREADS else {}


def wrong_samples(batches: Any) -> tuple[list[int], list[int]]:
    """The numbers of all samples, sorted, and those of the wrong ones."""
    samples = [
        (int(number), np.asarray(row, np.uint8).tobytes())
        for numbers, data in batches
        for number, row in zip(numbers.tolist(), data)
    ]
    wrong = [number for number, data in samples if data != content(number)]
    return sorted(number for number, _ in samples), wrong


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("workers", ["auto", "8 threads", "2 processes"])
def test_every_sample_is_right(name, front_end, workers, tmp_path):
    """The samples are those of the data set, in two epochs of different orders."""
    made = CASES[name](tmp_path)
    source, arguments = made if isinstance(made, tuple) else (made, {})
    arguments |= {"workers": workers, "shuffle": True, **undeclared(front_end, workers)}
    with (
        contextlib.closing(source) if hasattr(source, "close") else contextlib.nullcontext(),
        loader_of(front_end, source, BATCH_SIZE, **arguments) as loader,
    ):
        try:
            found = wrong_samples(batches_of(loader, epochs=2))
        except _OTHER_THREAD as error:
            # Nothing but one thread can serve it, and two were asked for.
            if not (name == "sqlite" and workers in THREADS and "thread" in str(error)):
                raise
            return
    assert found == (sorted(NUMBERS * 2), [])


@pytest.mark.parametrize(
    ("way", "workers"), [("halves", "auto"), ("halves", "2 threads"), ("split", "auto")]
)
def test_two_loaders_share_a_handle(way, workers, front_end, tmp_path):
    """Training and validation are two data sets on one open file, and are read in turns."""
    with contextlib.closing(stateful.File(tmp_path)) as file:
        arguments = {"workers": workers, "shuffle": True, **undeclared(front_end, workers)}
        parts = split(file, [0.5, 0.5]) if way == "split" else halves(file)
        loaders = [loader_of(front_end, part, BATCH_SIZE, **arguments) for part in parts]
        with loaders[0], loaders[1]:
            batches = [
                batch
                for _ in range(12)
                for pair in zip(*map(batches_of, loaders), strict=True)
                for batch in pair
            ]
    assert wrong_samples(batches) == (sorted(NUMBERS * 12), [])


@pytest.mark.parametrize("workers", ["inline", "2 threads", "2 processes"])
def test_a_batch_that_is_asked_for_by_its_number_meanwhile(workers, tmp_path):
    """``seq[i]`` and ``peek`` in the loop read nothing wrong, and spoil nothing."""
    with (
        contextlib.closing(stateful.File(tmp_path)) as file,
        loader_of("keras", file, BATCH_SIZE, workers=workers, shuffle=True) as sequence,
    ):
        batches, again = [], []
        for batch in sequence:
            batches.append(batch)
            if len(again) < 9:  # Within the first epoch.
                again.append(sequence[len(again)])
                sequence.peek()
        assert wrong_samples(batches) == (NUMBERS, [])
        assert wrong_samples(again)[1] == []


@pytest.mark.parametrize("workers", ["auto", "2 threads"])
def test_fit_validates_on_the_same_handle(workers, tmp_path):
    """A model that learns from one half and validates on the other is shown the right samples."""
    from tests.keras.recording import Recorder

    with contextlib.closing(stateful.File(tmp_path)) as file:
        training, validation = (
            loader_of("keras", half, BATCH_SIZE, workers=workers, shuffle=True, transform=_joined)
            for half in halves(file)
        )
        with training, validation:
            model = Recorder()
            model.fit(training, validation_data=validation, epochs=6, verbose=0)
    for batches, numbers in (
        (model.lists.trained, range(LENGTH // 2)),
        (model.lists.tested, range(LENGTH // 2, LENGTH)),
    ):
        rows = np.concatenate([features for features, _ in batches]).astype(np.uint8)
        assert sorted(rows[:, 0].tolist()) == sorted([*numbers] * 6)
        assert [row[0] for row in rows if row[1:].tobytes() != content(row[0])] == []


def _joined(sample: Any) -> Any:
    number, data = sample
    features = np.concatenate([[number], data]).astype(np.float32)
    return features, features[:1]
