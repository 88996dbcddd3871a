"""What needs no ``thread_safe``, what the log says of it, and what can't go to processes."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, SafeSequence, open_images
from tests.contract.front_ends import (
    AUTO,
    EIGHT_THREADS,
    FRONT_ENDS,
    GLUON,
    KERAS,
    NEEDS_MXNET,
    TWO_PROCESSES,
    batches_of,
    loader_of,
    log_lines,
)
from tests.contract.occupancy import (
    LENGTH,
    DataSet,
    DeclaredDataSet,
    DeclaredFunction,
    DeclaredParse,
    DeclaredStack,
    Meeting,
    Occupancy,
    Waiting,
    Where,
)
from tests.contract.test_thread_safe import BATCH_SIZE, NUMBERS, read, records, twice


def said(log: pytest.LogCaptureFixture) -> list[str]:
    """The lines about threads that wait."""
    return [line for line in log_lines(log) if "thread_safe" in line]


def test_threads_that_wait_for_each_other_are_explained_once(log):
    read(KERAS, epochs=3, source=DataSet(Occupancy()))
    (line,) = said(log)
    assert "thread_safe=True" in line.replace(" = ", "=")


@pytest.mark.parametrize("workers", [EIGHT_THREADS, AUTO])
@pytest.mark.parametrize(
    "make",
    [
        lambda folder: {"source": np.arange(LENGTH)},
        lambda folder: {"source": list(NUMBERS)},
        lambda folder: {"source": records(folder), "collate": DeclaredStack(Occupancy())},
        lambda folder: {"source": DeclaredDataSet(Occupancy())},
        lambda folder: {"source": DataSet(Occupancy()), "thread_safe": True},
    ],
    ids=["an array", "a list", "records", "an attribute", "the argument"],
)
def test_known_and_declared_code_is_no_matter_for_the_log(make, workers, log, tmp_path):
    arguments = make(tmp_path)
    with loader_of(
        KERAS, arguments.pop("source"), BATCH_SIZE, workers=workers, **arguments
    ) as loader:
        list(loader)
    assert said(log) == []


def images(folder: Path) -> Any:
    """A folder of small images, and the package's decoder."""
    image = pytest.importorskip("PIL.Image")
    for number in range(16):
        path = folder / "photos" / str(number % 2) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (12, 12), (number, 0, 0)).save(path)
    return open_images(folder / "photos", decode=ImageDecoder(8, flip=True))


@pytest.mark.parametrize("source", ["array", "arrays", "records", "images"])
def test_the_packages_own_code_needs_no_declaration(source, log, tmp_path):
    """Only what follows it is the user's, who has declared it."""
    watch = Meeting()
    known = {
        "array": lambda: np.arange(LENGTH),
        "arrays": lambda: (np.arange(LENGTH), np.arange(LENGTH)),
        "records": lambda: records(tmp_path, DeclaredParse(Occupancy())),
        "images": lambda: images(tmp_path),
    }[source]()
    with loader_of(
        KERAS, known, BATCH_SIZE, workers=EIGHT_THREADS, batch_transform=DeclaredFunction(watch)
    ) as loader:
        list(loader)
    assert watch.met
    assert said(log) == []


@NEEDS_MXNET
def test_mxnets_own_code_needs_no_declaration(log):
    import mxnet
    from mxnet.gluon.data import ArrayDataset
    from mxnet.gluon.data.vision import transforms

    watch = Meeting()
    data = ArrayDataset(mxnet.nd.zeros((LENGTH, 4, 4, 3), dtype="uint8"), np.arange(LENGTH))
    with loader_of(
        GLUON,
        data.transform_first(transforms.ToTensor()),
        BATCH_SIZE,
        workers=EIGHT_THREADS,
        batch_transform=DeclaredFunction(watch),
    ) as loader:
        list(loader)
    assert watch.met
    assert said(log) == []


def rescaling() -> Any:
    """A layer without variables."""
    import keras

    return keras.layers.Rescaling(1 / 255)


def a_pipeline() -> Any:
    """Layers without variables."""
    import keras

    return keras.layers.Pipeline([keras.layers.CenterCrop(4, 4), rescaling()])


def a_random_flip() -> Any:
    """A layer whose seed changes with each call."""
    import keras

    return keras.layers.RandomFlip(seed=0)


def a_dense_layer() -> Any:
    """A layer that makes its variables in its first call."""
    import keras

    return keras.layers.Dense(1)


def a_lambda() -> Any:
    """A layer with a function of the user's."""
    import keras

    return keras.layers.Lambda(lambda image: image)


def an_activation() -> Any:
    """A layer that calls a function of the user's."""
    import keras

    return keras.layers.Activation(lambda image: image)


def a_models_predict() -> Any:
    """A method that changes the model."""
    import keras

    return keras.Sequential([keras.Input((8, 8, 3)), rescaling()]).predict


@pytest.mark.parametrize(
    ("make", "known"),
    [
        (rescaling, True),
        (a_pipeline, True),
        (a_random_flip, False),
        (a_dense_layer, False),
        (a_lambda, False),
        (an_activation, False),
        (a_models_predict, False),
    ],
)
def test_a_preprocessing_layer_of_keras_needs_no_declaration(make, known, log):
    images = np.zeros((LENGTH, 8, 8, 3), np.uint8)
    with loader_of(
        KERAS, images, BATCH_SIZE, workers=EIGHT_THREADS, batch_transform=make()
    ) as loader:
        list(loader)
    assert (said(log) == []) == known


def in_a_sequential(block: Any) -> Any:
    """MXNet's block that calls another one."""
    import mxnet

    outer = mxnet.gluon.nn.Sequential()
    outer.add(block)
    return outer


def in_two_composes(block: Any) -> Any:
    """MXNet's chain within a chain."""
    from mxnet.gluon.data.vision.transforms import Compose

    return Compose([Compose([block])])


def in_a_lambda(block: Any) -> Any:
    """MXNet's block of a function of the user's."""
    import mxnet

    return mxnet.gluon.nn.Lambda(lambda image: block(image))


@NEEDS_MXNET
@pytest.mark.parametrize("held", [in_a_sequential, in_two_composes, in_a_lambda])
def test_code_of_the_users_in_a_block_of_mxnets_is_the_users(held):
    import mxnet
    from mxnet.gluon.data import ArrayDataset

    within, most = [], []
    with open(os.devnull, "rb") as unpicklable_file:

        class Slow(mxnet.gluon.Block):
            def forward(self, image: Any) -> Any:
                within.append(unpicklable_file)
                time.sleep(0.004)
                most.append(len(within))
                within.pop()
                return image

        data = ArrayDataset(mxnet.nd.zeros((LENGTH, 2)), np.arange(LENGTH))
        source = data.transform_first(held(Slow()))
        with loader_of(GLUON, source, BATCH_SIZE, workers=AUTO) as loader:
            list(batches_of(loader, 2))
    assert most == [1] * (2 * LENGTH)


@NEEDS_MXNET
@pytest.mark.parametrize("wrapped", ["ArrayDataset", "SimpleDataset"])
def test_a_data_set_of_the_users_in_one_of_mxnets_is_the_users(wrapped):
    from mxnet.gluon.data import ArrayDataset, SimpleDataset

    within, most = [], []
    with open(os.devnull, "rb") as unpicklable_file:

        def slow(number: Any) -> Any:
            within.append(unpicklable_file)
            time.sleep(0.004)
            most.append(len(within))
            within.pop()
            return number

        inner = SimpleDataset(NUMBERS).transform(slow)
        source = (
            SimpleDataset(inner) if wrapped == "SimpleDataset" else ArrayDataset(inner, NUMBERS)
        )
        with loader_of(GLUON, source, BATCH_SIZE, workers=AUTO) as loader:
            list(batches_of(loader, 2))
    assert most == [1] * (2 * LENGTH)


# --- processes ---


@contextlib.contextmanager
def unpicklable(kind: str, folder: Path) -> Any:
    """Something that can't be sent to a process."""
    if kind == "a file":
        with open(folder / "some", "w+b") as file:
            yield file
    elif kind == "a function over a file":
        with open(folder / "some", "w+b") as file:
            yield lambda: file.read()
    elif kind == "a socket":
        with socket.socket() as connection:
            yield connection
    else:
        yield (number for number in range(9))


KINDS = ["a file", "a function over a file", "a socket", "a generator"]


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("declared", [None, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_pickled_runs_inline(kind, declared, front_end, log, tmp_path):
    """Processes were asked for: it is never several threads that come instead."""
    # By itself, Gluon's loader may well take threads for what is declared.
    asked = {"thread_pool": False} if front_end == GLUON else {}
    with unpicklable(kind, tmp_path) as held:
        loader = loader_of(
            front_end,
            Where(held),
            BATCH_SIZE,
            workers=TWO_PROCESSES,
            thread_safe=declared,
            **asked,
        )
        with loader:
            rows = np.concatenate(list(batches_of(loader, 2))).astype(np.int64)
    assert sorted(rows[:, 0].tolist()) == twice(NUMBERS)
    assert {*rows[:, 1].tolist()} == {os.getpid()}
    assert len({*rows[:, 2].tolist()}) == 1
    assert any("inline" in line for line in log_lines(log))


def test_waiting_code_that_is_undeclared_takes_processes():
    """More than there are CPUs, under ``workers="auto"``."""
    processes, deadline = {os.getpid()}, time.monotonic() + 60
    with SafeSequence(Waiting(), BATCH_SIZE, workers="auto") as sequence:
        while len(processes) < 2 + len(os.sched_getaffinity(0)) and time.monotonic() < deadline:
            for batch in sequence:
                processes |= {*batch[:, 1].tolist()}
    assert len(processes) >= 2 + len(os.sched_getaffinity(0))
