"""Data sets with a state give the right samples with every kind of workers, on both front ends.

Each is read as it is, without a declaration: in two orders, sample by sample against what it must
hold.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import RecordWriter, concatenate, open_records, split
from tests.contract import stateful
from tests.contract.front_ends import (
    ALL_WORKERS,
    NEEDS_MXNET,
    THREADS,
    batches_of,
    loader_of,
    undeclared,
)
from tests.contract.stateful import LENGTH, content

BATCH_SIZE = 4
_OTHER_THREAD = (sqlite3.ProgrammingError, RuntimeError)


@dataclass
class Setup:
    """What a loader is given.

    Args:
        source: The data set.
        arguments: Further arguments of ``loader_of``.
        batch_size: None if the source has batches.
        close: Closes what the source doesn't; None for the source's own ``close``.
    """

    source: Any
    arguments: dict[str, Any] = field(default_factory=dict)
    batch_size: int | None = BATCH_SIZE
    close: Callable[[], None] | None = None


@dataclass(frozen=True)
class Case:
    """One data set with a state.

    Args:
        make: Makes it, with its files in a folder.
        front_ends: That can read it.
        own_thread: Whether it refuses other threads, which it does itself.
    """

    make: Callable[[Path], Setup]
    front_ends: tuple[str, ...] = ("keras", "gluon")
    own_thread: bool = False


def of(kind: type[stateful.Stateful], **options: Any) -> Case:
    """The case of a data set that is given as it is."""
    return Case(lambda folder: Setup(kind(folder)), **options)


def with_function(**functions: Callable[[], Any]) -> Case:
    """The case of a function with a state, over the numbers of the samples."""
    return Case(
        lambda folder: Setup(
            list(range(LENGTH)), {name: make() for name, make in functions.items()}
        )
    )


def records(folder: Path) -> Setup:
    """Records that a function of the user's own takes apart."""
    with RecordWriter(folder / "samples.tfrecord", format="tfrecord") as writer:
        for number in range(LENGTH):
            writer.write(bytes([number]) + content(number))
    return Setup(open_records(folder / "samples.tfrecord", decode=stateful.Decode()))


def keras_batches(folder: Path) -> Setup:
    """A ``PyDataset`` with a handle."""
    from tests.contract.stateful_keras import Batches

    return Setup(Batches(folder), batch_size=None)


def of_gluon(name: str) -> Case:
    """A data set of MXNet's classes."""

    def make(folder: Path) -> Setup:
        from tests.contract import stateful_gluon

        return Setup(getattr(stateful_gluon, name)(folder))

    return Case(make, front_ends=("gluon",))


def sampled(folder: Path) -> Setup:
    """A sampler with a state, for a data set with one."""
    return Setup(stateful.Buffer(folder), {"sampler": stateful.Sampler()})


def batch_sampled(folder: Path) -> Setup:
    """A sampler of batches with a state."""
    sampler = stateful.BatchSampler(BATCH_SIZE)
    return Setup(stateful.Buffer(folder), {"batch_sampler": sampler}, batch_size=None)


class Half(stateful.Stateful):
    """One half of another data set, whose handle both use."""

    def prepare(self, folder: Any) -> None:
        self.inner, self.start = folder

    def __len__(self) -> int:
        return LENGTH // 2

    def __getitem__(self, number: int) -> Any:
        return self.inner[self.start + number]


def concatenated(folder: Path) -> Setup:
    """Two data sets of the user's own on one handle, as one source."""
    file = stateful.File(folder)
    halves = [Half((file, 0)), Half((file, LENGTH // 2))]
    return Setup(concatenate(halves), close=file.close)


CASES = {
    "a file": of(stateful.File),
    "a file, opened lazily": of(stateful.LazyFile),
    "a file, opened lazily, that pickles": of(stateful.PicklableFile),
    "BytesIO": of(stateful.Memory),
    "tar": of(stateful.Tar),
    "sqlite": of(stateful.Database, own_thread=True),
    "sqlite, connected lazily": of(stateful.LazyDatabase, own_thread=True),
    "a socket": of(stateful.Socket),
    "a cache": of(stateful.Recent),
    "one buffer": of(stateful.Buffer),
    "a module's buffer": of(stateful.OfTheModule),
    "__getitems__": of(stateful.Several),
    "named tuples": of(stateful.Named),
    "dicts": of(stateful.Dictionaries, front_ends=("keras",)),
    "another data set": of(stateful.Wrapped),
    "a transform": with_function(transform=stateful.Transform),
    "a closure": with_function(transform=stateful.closure),
    "a batch_transform": with_function(batch_transform=stateful.BatchTransform),
    "a collate": with_function(collate=stateful.Collate),
    "a decode": Case(records),
    "a PyDataset": Case(keras_batches, front_ends=("keras",)),
    "a Gluon data set": of_gluon("GluonFile"),
    "a RecordFileDataset": of_gluon("Records"),
    "a sampler": Case(sampled, front_ends=("gluon",)),
    "a batch sampler": Case(batch_sampled, front_ends=("gluon",)),
    "two on one handle": Case(concatenated),
}
EVERYWHERE = {
    "keras": {
        "a file",
        "a file, opened lazily",
        "a file, opened lazily, that pickles",
        "sqlite",
        "a socket",
        "a cache",
        "one buffer",
        "__getitems__",
        "a transform",
        "a collate",
        "a decode",
    },
    "gluon": {"a file", "tar", "sqlite", "one buffer", "a transform", "a sampler"},
}


def matrix() -> Iterator[Any]:
    """All cases and front ends that go together; those of ``EVERYWHERE`` with all workers."""
    for name, case in CASES.items():
        for front_end in case.front_ends:
            marks = [NEEDS_MXNET] if front_end == "gluon" else []
            everywhere = name in EVERYWHERE[front_end]
            for workers in ALL_WORKERS if everywhere else ("8 threads", "2 processes"):
                nightly = not everywhere and workers == "2 processes"
                more = [pytest.mark.full] if nightly else []
                yield pytest.param(name, front_end, workers, marks=[*marks, *more])


@contextlib.contextmanager
def opened(name: str, folder: Path) -> Iterator[Setup]:
    """A case's data set, which is closed in the end."""
    setup = CASES[name].make(folder)
    try:
        yield setup
    finally:
        (setup.close or getattr(setup.source, "close", lambda: None))()


def samples_of(batch: Any) -> Iterator[tuple[int, bytes]]:
    """The numbers and bytes in a batch."""
    numbers, data = (batch["number"], batch["data"]) if isinstance(batch, dict) else batch
    for number, row in zip(numbers.tolist(), data):
        yield int(number), np.asarray(row, np.uint8).tobytes()


def wrong_samples(batches: Any) -> tuple[list[int], list[int]]:
    """The numbers of all samples, sorted, and those of the wrong ones."""
    samples = [sample for batch in batches for sample in samples_of(batch)]
    wrong = [number for number, data in samples if data != content(number)]
    return sorted(number for number, _ in samples), wrong


@pytest.mark.parametrize(("name", "front_end", "workers"), list(matrix()))
def test_every_sample_is_right(name, front_end, workers, tmp_path):
    """The samples are those of the data set, in two epochs of different orders."""
    own_order = "sampler" in name
    with opened(name, tmp_path) as setup:
        loader = loader_of(
            front_end,
            setup.source,
            setup.batch_size,
            workers=workers,
            shuffle=not own_order and setup.batch_size is not None,
            **undeclared(front_end, workers),
            **setup.arguments,
        )
        with loader:
            try:
                found = wrong_samples(batches_of(loader, epochs=2))
            except _OTHER_THREAD as error:
                # Nothing but one thread can serve it, and two were asked for.
                if not (CASES[name].own_thread and workers in THREADS and "thread" in str(error)):
                    raise
                return
    assert found == (sorted([*range(LENGTH)] * 2), [])


def _pair(file: stateful.File, way: str) -> tuple[Any, Any]:
    if way == "split":
        training, validation = split(file, [0.5, 0.5])
        return training, validation
    return Half((file, 0)), Half((file, LENGTH // 2))


@pytest.mark.parametrize("workers", ["inline", "auto", "2 threads"])
@pytest.mark.parametrize("way", ["halves", "split"])
def test_two_loaders_share_a_handle(way, workers, front_end, tmp_path):
    """Training and validation are two data sets on one open file, and are read in turns."""
    with contextlib.closing(stateful.File(tmp_path)) as file:
        loaders = [
            loader_of(
                front_end,
                half,
                BATCH_SIZE,
                workers=workers,
                shuffle=True,
                **undeclared(front_end, workers),
            )
            for half in _pair(file, way)
        ]
        with loaders[0], loaders[1]:
            batches = [
                batch
                for _ in range(12)
                for pair in zip(*map(batches_of, loaders), strict=True)
                for batch in pair
            ]
    assert wrong_samples(batches) == (sorted([*range(LENGTH)] * 12), [])


@pytest.mark.parametrize("workers", ALL_WORKERS)
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
        assert wrong_samples(batches) == ([*range(LENGTH)], [])
        assert wrong_samples(again)[1] == []


@pytest.mark.parametrize("workers", ["auto", "2 threads"])
def test_fit_validates_on_the_same_handle(workers, tmp_path):
    """A model that learns from one half and validates on the other is shown the right samples."""
    from tests.keras.recording import Recorder

    with contextlib.closing(stateful.File(tmp_path)) as file:
        training, validation = (
            loader_of("keras", half, BATCH_SIZE, workers=workers, shuffle=True, transform=_joined)
            for half in _pair(file, "halves")
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
