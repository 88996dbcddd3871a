"""``thread_safe``: code of the user's runs in one thread at a time until it is declared."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, SafeSequence, open_images, open_records
from tests.contract import occupancy
from tests.contract.front_ends import NEEDS_MXNET, batches_of, loader_of, log_lines, undeclared
from tests.contract.occupancy import LENGTH, DataSet, Function, Meeting, Occupancy, Where, declared
from tests.sources.image_folders import varied
from tests.sources.record_files import write

BATCH_SIZE = 4
NUMBERS = list(range(LENGTH))
TWICE = sorted(NUMBERS * 2)


def records(folder: Path, decode: Any) -> Any:
    path = write(folder / "numbers.tfrecord", "tfrecord", map(bytes, zip(NUMBERS)))
    return open_records(path, decode=decode)


def number_of(record: bytes) -> Any:
    return np.int64(record[0])


def arguments_of(
    part: str, watch: Any, folder: Path, thread_safe: bool | None = None
) -> dict[str, Any]:
    if part == "a PyDataset":
        return {"source": declared(py_dataset(watch), thread_safe), "batch_size": None}
    if part in ("__getitem__", "__getitems__"):
        kind = DataSet if part == "__getitem__" else occupancy.Several
        return {"source": declared(kind(watch), thread_safe)}
    if part == "sampler":
        return {"source": np.arange(LENGTH), "sampler": occupancy.Sampler(watch)}
    if part == "decode":
        return {"source": records(folder, declared(Function(watch, number_of), thread_safe))}
    if part == "collate":
        collate = declared(Function(watch, np.array), thread_safe)
        return {"source": declared(DataSet(occupancy.Unwatched())), "collate": collate}
    function: Any = Function(watch)
    if part == "a function":
        part, call = "transform", function

        def function(sample: Any) -> Any:
            return call(sample)

    source: Any = NUMBERS if part == "transform" else np.arange(LENGTH)
    return {"source": source, part: declared(function, thread_safe)}


def py_dataset(watch: Any) -> Any:
    import keras

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return LENGTH // BATCH_SIZE

        def __getitem__(self, index: int) -> Any:
            with watch.inside():
                return np.arange(index * BATCH_SIZE, (index + 1) * BATCH_SIZE)

    return Batches()


def read(front_end: str, workers: str = "8 threads", epochs: int = 2, **arguments: Any) -> Any:
    source, size = arguments.pop("source"), arguments.pop("batch_size", BATCH_SIZE)
    with loader_of(front_end, source, size, workers=workers, **arguments) as loader:
        batches = list(batches_of(loader, epochs))
    return sorted(np.concatenate(batches).tolist())


PARTS = ["__getitem__", "__getitems__", "transform", "batch_transform", "collate", "decode"]
DECLARABLE = [(part, front_end) for part in PARTS for front_end in ("keras", "gluon")]
ALL_PARTS = [*DECLARABLE, ("a PyDataset", "keras"), ("sampler", "gluon")]


# --- without a declaration ---


@pytest.mark.parametrize("workers", ["8 threads", "auto"])
@pytest.mark.parametrize(("part", "front_end"), ALL_PARTS)
def test_undeclared_code_has_one_thread(part, front_end, workers, tmp_path):
    watch = Occupancy()
    arguments = undeclared(front_end, workers) | arguments_of(part, watch, tmp_path)
    assert read(front_end, workers, **arguments) == TWICE
    assert watch.calls >= LENGTH // BATCH_SIZE
    assert watch.most == 1


@pytest.mark.parametrize("workers", ["8 threads", "auto"])
def test_undeclared_code_together_has_one_thread(workers):
    """A data set and its transforms may share what they hold."""
    watch = Occupancy()
    functions = {"transform": Function(watch), "batch_transform": Function(watch)}
    arguments = {"source": DataSet(watch), "collate": Function(watch, np.array), **functions}
    assert read("keras", workers, **arguments) == TWICE
    assert watch.most == 1


def test_undeclared_data_set_asked_by_the_users_threads():
    """``seq[i]`` is safe to call from any thread; the data set is not."""
    data_set = DataSet(Occupancy())
    with (
        SafeSequence(data_set, BATCH_SIZE, workers=0) as sequence,
        ThreadPoolExecutor(4) as threads,
    ):
        found = np.concatenate([*threads.map(sequence.__getitem__, range(len(sequence)))]).tolist()
    assert sorted(found) == NUMBERS
    assert data_set.watch.most == 1


# --- with one ---


@pytest.mark.parametrize(("part", "front_end"), DECLARABLE)
def test_argument_declares_all_code(part, front_end, tmp_path):
    watch = Meeting()
    arguments = arguments_of(part, watch, tmp_path)
    assert read(front_end, thread_safe=True, **arguments) == TWICE
    assert watch.met


@pytest.mark.parametrize("part", [*PARTS, "a function", "a PyDataset"])
@pytest.mark.parametrize("thread_safe", [None, False])
def test_attribute_declares_what_has_it_unless_taken_back(part, thread_safe, tmp_path):
    watch: Any = Meeting() if thread_safe is None else Occupancy()
    arguments = arguments_of(part, watch, tmp_path, thread_safe=True)
    assert read("keras", thread_safe=thread_safe, **arguments) == TWICE
    assert watch.met if thread_safe is None else watch.most == 1


def test_attribute_that_is_false_declares_nothing():
    data_set = declared(DataSet(Occupancy()), False)
    read("keras", source=data_set)
    assert data_set.watch.most == 1


def test_undeclared_code_beside_declared():
    undeclared = Occupancy()
    found = read("keras", source=declared(DataSet(Occupancy())), transform=Function(undeclared))
    assert found == TWICE
    assert undeclared.most == 1


@NEEDS_MXNET
def test_thread_pool_of_gluon_declares():
    """``thread_pool=True`` says it, as with MXNet's own loader."""
    watch = Meeting()
    assert read("gluon", source=DataSet(watch)) == TWICE
    assert watch.met


@pytest.mark.parametrize("wrong", ["yes", 1.5, [True]], ids=str)
def test_argument_of_another_type_is_an_error(wrong, front_end):
    with pytest.raises(TypeError, match="thread_safe"):
        loader_of(front_end, np.arange(LENGTH), BATCH_SIZE, thread_safe=wrong)


@NEEDS_MXNET
@pytest.mark.parametrize("own", ["sampler", "batch_sampler"])
def test_sampler_that_asks_the_data_set_takes_its_turn(own):
    from mxnet.gluon.data import BatchSampler

    data_set = DataSet(Occupancy())

    class Asking:
        def __len__(self) -> int:
            return LENGTH

        def __iter__(self) -> Any:
            return (int(data_set[number]) for number in NUMBERS)

    sampler = Asking() if own == "sampler" else BatchSampler(Asking(), BATCH_SIZE, "keep")
    size = BATCH_SIZE if own == "sampler" else None
    arguments = {"source": data_set, "batch_size": size, own: sampler, "prefetch": 2}
    assert read("gluon", thread_safe=False, **arguments) == TWICE
    assert data_set.watch.most == 1


# --- what needs no declaration, and what can't go to processes ---


def said(log: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in log_lines(log) if "thread_safe" in line]


def test_log_explains_threads_that_wait_once(log):
    read("keras", epochs=3, source=DataSet(Occupancy()))
    (line,) = said(log)
    assert "thread_safe=True" in line.replace(" = ", "=")


def test_log_says_nothing_of_declared_code(log):
    read("keras", source=NUMBERS)
    read("keras", source=declared(DataSet(occupancy.Unwatched())))
    read("keras", source=DataSet(occupancy.Unwatched()), thread_safe=True)
    assert said(log) == []


def read_by_threads(front_end: str, source: Any, batch_transform: Any) -> None:
    arguments = {"workers": "8 threads", "batch_transform": batch_transform}
    with loader_of(front_end, source, BATCH_SIZE, **arguments) as loader:
        list(loader)


KNOWN = {
    "array": lambda folder: np.arange(LENGTH),
    "arrays": lambda folder: (np.arange(LENGTH), np.arange(LENGTH)),
    "records": lambda folder: records(folder, declared(Function(Occupancy(), number_of))),
    "images": lambda folder: open_images(varied(folder, 16), decode=ImageDecoder(8, flip=True)),
}


@pytest.mark.parametrize("source", KNOWN)
def test_package_needs_no_declaration(source, log, tmp_path):
    """Only what follows it is the user's, who has declared it."""
    watch = Meeting()
    read_by_threads("keras", KNOWN[source](tmp_path), declared(Function(watch)))
    assert watch.met
    assert said(log) == []


@NEEDS_MXNET
def test_mxnet_needs_no_declaration(log):
    import mxnet
    from mxnet.gluon.data import ArrayDataset
    from mxnet.gluon.data.vision import transforms

    watch = Meeting()
    data = ArrayDataset(mxnet.nd.zeros((LENGTH, 4, 4, 3), dtype="uint8"), np.arange(LENGTH))
    data = data.transform_first(transforms.ToTensor())
    read_by_threads("gluon", data, declared(Function(watch)))
    assert watch.met
    assert said(log) == []


@pytest.mark.parametrize(
    ("make", "known"),
    [
        (lambda layers: layers.Rescaling(1 / 255), True),
        (lambda layers: layers.Pipeline([layers.CenterCrop(4, 4), layers.Rescaling(1)]), True),
        (lambda layers: layers.RandomFlip(seed=0), False),
        (lambda layers: layers.Dense(1), False),
        (lambda layers: layers.Pipeline([layers.Lambda(lambda image: image)]), False),
    ],
    ids=["Rescaling", "Pipeline", "with a seed", "with variables", "Lambda"],
)
def test_layer_of_keras_needs_no_declaration_if_it_only_computes(make, known, log):
    images = np.zeros((4 * BATCH_SIZE, 8, 8, 3), np.uint8)
    read_by_threads("keras", images, make(pytest.importorskip("keras").layers))
    assert (said(log) == []) == known


@NEEDS_MXNET
@pytest.mark.parametrize(
    "held", ["Sequential", "Compose", "Lambda", "ArrayDataset", "SimpleDataset"]
)
def test_code_of_the_users_within_mxnets_is_the_users(held):
    """In a block that calls another one, a chain in a chain, a function, and in data sets."""
    import mxnet
    from mxnet.gluon.data import ArrayDataset, SimpleDataset
    from mxnet.gluon.data.vision.transforms import Compose

    watch = Occupancy()

    with open(os.devnull, "rb") as unpicklable_file:

        def slow(item: Any) -> Any:
            assert unpicklable_file is not None
            with watch.inside():
                time.sleep(0.003)
            return item

        class Slow(mxnet.gluon.Block):
            def forward(self, image: Any) -> Any:
                return slow(image)

        own, sequential = Slow(), mxnet.gluon.nn.Sequential()
        sequential.add(own)
        data = ArrayDataset(mxnet.nd.zeros((LENGTH, 2)), np.arange(LENGTH))
        numbers = SimpleDataset(NUMBERS).transform(slow)
        source = {
            "Sequential": lambda: data.transform_first(sequential),
            "Compose": lambda: data.transform_first(Compose([Compose([own])])),
            "Lambda": lambda: data.transform_first(mxnet.gluon.nn.Lambda(lambda x: own(x))),
            "ArrayDataset": lambda: ArrayDataset(numbers, NUMBERS),
            "SimpleDataset": lambda: SimpleDataset(numbers),
        }[held]()
        with loader_of("gluon", source, BATCH_SIZE, workers="auto") as loader:
            list(batches_of(loader, 2))
    assert (watch.calls, watch.most) == (2 * LENGTH, 1)


# --- processes ---


@pytest.mark.parametrize("thread_safe", [None, True])
@pytest.mark.parametrize("kind", ["a file", "a function over a file"])
def test_unpicklable_code_runs_inline(kind, thread_safe, front_end, log, tmp_path):
    """Processes were asked for: it is never several threads that come instead."""
    # By itself, Gluon's loader may well take threads for what is declared.
    asked = {"thread_pool": False} if front_end == "gluon" else {}
    asked |= {"workers": "2 processes", "thread_safe": thread_safe}
    with open(tmp_path / "some", "w+b") as file:
        held = file if kind == "a file" else lambda: file.read()
        with loader_of(front_end, Where(held), BATCH_SIZE, **asked) as loader:
            rows = np.concatenate(list(batches_of(loader, 2))).astype(np.int64)
    assert sorted(rows[:, 0].tolist()) == TWICE
    assert {*rows[:, 1].tolist()} == {os.getpid()}
    assert len({*rows[:, 2].tolist()}) == 1
    assert any("inline" in line for line in log_lines(log))


def test_undeclared_code_that_waits_takes_processes():
    """More than there are CPUs, under ``workers="auto"``."""
    processes, deadline = {os.getpid()}, time.monotonic() + 60
    with SafeSequence(occupancy.Waiting(), BATCH_SIZE, workers="auto") as sequence:
        while len(processes) < 2 + len(os.sched_getaffinity(0)) and time.monotonic() < deadline:
            for batch in sequence:
                processes |= {*batch[:, 1].tolist()}
    assert len(processes) >= 2 + len(os.sched_getaffinity(0))
