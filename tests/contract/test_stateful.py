"""Data sets with a state give the right samples with every kind of workers, on both front ends.

Each is read as it is, without a declaration: in two orders, sample by sample against what it must
hold.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import RecordWriter, concatenate, open_records, split
from tests.contract import stateful
from tests.contract.front_ends import (
    ALL_WORKERS,
    AUTO,
    EIGHT_THREADS,
    FRONT_ENDS,
    GLUON,
    INLINE,
    KERAS,
    NEEDS_MXNET,
    TWO_THREADS,
    batches_of,
    loader_of,
)
from tests.contract.stateful import LENGTH, content

BATCH_SIZE = 4
THREADS = (TWO_THREADS, EIGHT_THREADS)


Made = tuple[Any, dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """One data set or function with a state.

    Args:
        make: Makes it with its files in a folder: a source, and further arguments of a loader.
        front_ends: That can read it.
        quick: Those of them that need no ``--full``.
        own_thread: Whether it refuses other threads, which it does itself.
        whole_batches: Whether it gives batches, and not samples.
    """

    make: Callable[[Path], Made]
    front_ends: tuple[str, ...] = (KERAS, GLUON)
    quick: tuple[str, ...] = ()
    own_thread: bool = False
    whole_batches: bool = False


def of(kind: Callable[[Path], Any], **options: Any) -> Case:
    """The case of a data set that is given as it is."""
    return Case(lambda folder: (kind(folder), {}), **options)


def with_function(name: str, make: Callable[[], Any], **options: Any) -> Case:
    """The case of a function with a state, over the numbers of the samples."""
    return Case(lambda folder: (list(range(LENGTH)), {name: make()}), **options)


def records(folder: Path) -> Made:
    """Records that a function of the user's own takes apart."""
    with RecordWriter(folder / "samples.tfrecord", format="tfrecord") as writer:
        for number in range(LENGTH):
            writer.write(bytes([number]) + content(number))
    return open_records(folder / "samples.tfrecord", decode=stateful.Decode()), {}


def sampled(folder: Path) -> Made:
    """A sampler with a state, for a data set with one."""
    return stateful.Buffer(folder), {"sampler": stateful.Sampler()}


def batch_sampled(folder: Path) -> Made:
    """A sampler of batches with a state."""
    return stateful.Buffer(folder), {"batch_sampler": stateful.BatchSampler(BATCH_SIZE)}


def concatenated(folder: Path) -> Made:
    """Two data sets of the user's own on one handle, as one source."""
    return concatenate([*halves(stateful.File(folder))]), {}


BOTH = (KERAS, GLUON)
CASES = {
    "a file": of(stateful.File, quick=BOTH),
    "a file, opened lazily": of(stateful.LazyFile, quick=(KERAS,)),
    "a connection of one thread": of(stateful.Database, quick=BOTH, own_thread=True),
    "a socket": of(stateful.Socket, quick=(KERAS,)),
    "a cache": of(stateful.Recent, quick=(KERAS,)),
    "one buffer": of(stateful.Buffer, quick=BOTH),
    "a module's buffer": of(stateful.OfTheModule),
    "a generator": of(stateful.Generated),
    "__getitems__": of(stateful.Several, quick=(KERAS,)),
    "named tuples": of(stateful.Named),
    "dicts": of(stateful.Dictionaries, front_ends=(KERAS,)),
    "a transform": with_function("transform", stateful.Transform, quick=BOTH),
    "a closure": with_function("transform", stateful.closure),
    "a batch_transform": with_function("batch_transform", stateful.Collate),
    "a collate": with_function("collate", stateful.Collate, quick=(KERAS,)),
    "a decode": Case(records, quick=(KERAS,)),
    "a PyDataset": of(stateful.keras_batches, front_ends=(KERAS,), whole_batches=True),
    "a RecordFileDataset": of(stateful.gluon_records, front_ends=(GLUON,)),
    "a sampler": Case(sampled, front_ends=(GLUON,), quick=(GLUON,)),
    "a batch sampler": Case(batch_sampled, front_ends=(GLUON,), whole_batches=True),
    "two on one handle": Case(concatenated),
}


def matrix() -> Iterator[Any]:
    """All cases, front ends and workers."""
    for name, case in CASES.items():
        for front_end in case.front_ends:
            marks = [NEEDS_MXNET] if front_end == GLUON else []
            if front_end not in case.quick:
                marks.append(pytest.mark.full)
            for workers in ALL_WORKERS:
                yield pytest.param(name, front_end, workers, marks=marks)


def closed(source: Any) -> contextlib.AbstractContextManager[Any]:
    """Close the source in the end, or what both halves of it have open."""
    parts = getattr(source, "parts", None)
    opened = parts[0].data.inner if parts else source
    return contextlib.closing(opened) if hasattr(opened, "close") else contextlib.nullcontext()


def undeclared(front_end: str, workers: str) -> dict[str, Any]:
    """Arguments that leave user code undeclared: Gluon's ``thread_pool=True`` declares it."""
    return {"thread_safe": False} if front_end == GLUON and workers in THREADS else {}


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
    case = CASES[name]
    source, arguments = case.make(tmp_path)
    with (
        closed(source),
        loader_of(
            front_end,
            source,
            None if case.whole_batches else BATCH_SIZE,
            workers=workers,
            shuffle="sampler" not in arguments and not case.whole_batches,
            **undeclared(front_end, workers),
            **arguments,
        ) as loader,
    ):
        try:
            found = wrong_samples(batches_of(loader, epochs=2))
        except sqlite3.ProgrammingError as error:
            # Nothing but one thread can serve it, and two were asked for.
            if not (case.own_thread and workers in THREADS and "thread" in str(error)):
                raise
            return
    assert found == (sorted([*range(LENGTH)] * 2), [])


def halves(file: stateful.File) -> tuple[Any, Any]:
    """Two data sets on one open file."""
    return stateful.Half(file, 0), stateful.Half(file, LENGTH // 2)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("workers", [INLINE, AUTO, TWO_THREADS])
@pytest.mark.parametrize(
    "parts", [halves, lambda file: split(file, [0.5, 0.5])], ids=["halves", "split"]
)
def test_two_loaders_share_a_handle(parts, workers, front_end, tmp_path):
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
            for half in parts(file)
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
        loader_of(KERAS, file, BATCH_SIZE, workers=workers, shuffle=True) as sequence,
    ):
        batches, again = [], []
        for batch in sequence:
            batches.append(batch)
            if len(again) < 9:  # Within the first epoch.
                again.append(sequence[len(again)])
                sequence.peek()
        assert wrong_samples(batches) == ([*range(LENGTH)], [])
        assert wrong_samples(again)[1] == []


@pytest.mark.parametrize("workers", [AUTO, TWO_THREADS])
def test_fit_validates_on_the_same_handle(workers, tmp_path):
    """A model that learns from one half and validates on the other is shown the right samples."""
    from tests.keras.recording import Recorder

    with contextlib.closing(stateful.File(tmp_path)) as file:
        training, validation = (
            loader_of(KERAS, half, BATCH_SIZE, workers=workers, shuffle=True, transform=_joined)
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
