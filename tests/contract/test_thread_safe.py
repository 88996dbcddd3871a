"""``thread_safe``: code of the user's runs in one thread at a time until it is declared."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, RecordWriter, SafeSequence, open_images, open_records
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
    Function,
    Meeting,
    Occupancy,
    Parse,
    Sampler,
    Several,
    Stack,
    Unwatched,
    Waiting,
    Where,
    declared,
)

BATCH_SIZE = 4
NUMBERS = list(range(LENGTH))


def records(folder: Path, decode: Any = None) -> Any:
    """Records of one byte, their number."""
    path = folder / "numbers.tfrecord"
    with RecordWriter(path, format="tfrecord") as writer:
        for number in NUMBERS:
            writer.write(bytes([number]))
    return open_records(path, decode=decode)


def arguments_of(
    part: str, watch: Any, folder: Path, thread_safe: bool | None = None
) -> dict[str, Any]:
    """A data set and functions, one of which is watched."""
    if part == "a PyDataset":
        return {"source": declared(py_dataset(watch), thread_safe), "batch_size": None}
    if part in ("__getitem__", "__getitems__"):
        return {"source": declared({"__getitem__": DataSet}.get(part, Several)(watch), thread_safe)}
    if part == "sampler":
        return {"source": np.arange(LENGTH), "sampler": Sampler(watch)}
    if part == "decode":
        return {"source": records(folder, declared(Parse(watch), thread_safe))}
    if part == "collate":
        collate = declared(Stack(watch), thread_safe)
        return {"source": DeclaredDataSet(Unwatched()), "collate": collate}
    function: Any = Function(watch)
    if part == "a function":
        part, call = "transform", function

        def function(sample: Any) -> Any:
            return call(sample)

    source: Any = NUMBERS if part == "transform" else np.arange(LENGTH)
    return {"source": source, part: declared(function, thread_safe)}


def py_dataset(watch: Any) -> Any:
    """A ``PyDataset`` of whole batches."""
    import keras

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return LENGTH // BATCH_SIZE

        def __getitem__(self, index: int) -> Any:
            with watch.inside():
                return np.arange(index * BATCH_SIZE, (index + 1) * BATCH_SIZE)

    return Batches()


def read(front_end: str, workers: str = EIGHT_THREADS, epochs: int = 2, **arguments: Any) -> Any:
    """All numbers that a loader gives, sorted."""
    source, size = arguments.pop("source"), arguments.pop("batch_size", BATCH_SIZE)
    with loader_of(front_end, source, size, workers=workers, **arguments) as loader:
        batches = list(batches_of(loader, epochs))
    return sorted(np.concatenate(batches).tolist())


def twice(numbers: list[int]) -> list[int]:
    """Those of two epochs."""
    return sorted(numbers * 2)


PARTS = ["__getitem__", "__getitems__", "transform", "batch_transform", "collate", "decode"]
DECLARABLE = [
    *((part, KERAS) for part in PARTS),
    *(pytest.param(part, GLUON, marks=NEEDS_MXNET) for part in PARTS),
]
ALL_PARTS = [*DECLARABLE, ("a PyDataset", KERAS), pytest.param("sampler", GLUON, marks=NEEDS_MXNET)]


# --- without a declaration ---


@pytest.mark.parametrize("workers", [EIGHT_THREADS, AUTO])
@pytest.mark.parametrize(("part", "front_end"), ALL_PARTS)
def test_undeclared_code_has_one_thread(part, front_end, workers, tmp_path):
    watch = Occupancy()
    # A pool of threads that Gluon is asked for declares the code, unless this takes it back.
    undeclared = {"thread_safe": False} if (front_end, workers) == (GLUON, EIGHT_THREADS) else {}
    arguments = arguments_of(part, watch, tmp_path)
    assert read(front_end, workers, **undeclared, **arguments) == twice(NUMBERS)
    assert watch.calls >= LENGTH // BATCH_SIZE
    assert watch.most == 1


@pytest.mark.parametrize("workers", [EIGHT_THREADS, AUTO])
def test_undeclared_code_together_has_one_thread(workers, tmp_path):
    """A data set and its transforms may share what they hold."""
    watch = Occupancy()
    found = read(
        KERAS,
        workers,
        source=DataSet(watch),
        transform=Function(watch),
        collate=Stack(watch),
        batch_transform=Function(watch),
    )
    assert found == twice(NUMBERS)
    assert watch.most == 1


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("workers", [EIGHT_THREADS, AUTO])
def test_undeclared_data_set_of_two_loaders_has_one_thread(workers, front_end):
    """Training and validation read from the same object."""
    data_set, undeclared = DataSet(Occupancy()), {}
    if (front_end, workers) == (GLUON, EIGHT_THREADS):
        undeclared = {"thread_safe": False}
    loaders = [
        loader_of(front_end, data_set, BATCH_SIZE, workers=workers, **undeclared) for _ in range(2)
    ]
    with loaders[0], loaders[1]:
        for first, second in zip(*map(batches_of, loaders), strict=True):
            assert first.tolist() == second.tolist()
    assert data_set.watch.most == 1


def test_undeclared_data_set_asked_by_the_users_threads():
    """``seq[i]`` is safe to call from any thread; the data set is not."""
    data_set, found = DataSet(Occupancy()), []
    with SafeSequence(data_set, BATCH_SIZE, workers=0) as sequence:

        def ask(start: int) -> None:
            found.extend(n for i in range(start, 12, 4) for n in sequence[i].tolist())

        threads = [threading.Thread(target=ask, args=(start,)) for start in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(found) == NUMBERS
    assert data_set.watch.most == 1


# --- with one ---


@pytest.mark.parametrize(("part", "front_end"), DECLARABLE)
def test_argument_declares_all_code(part, front_end, tmp_path):
    watch = Meeting()
    arguments = arguments_of(part, watch, tmp_path)
    assert read(front_end, thread_safe=True, **arguments) == twice(NUMBERS)
    assert watch.met


@pytest.mark.parametrize("part", [*PARTS, "a function", "a PyDataset"])
@pytest.mark.parametrize("thread_safe", [None, False])
def test_attribute_declares_what_has_it_unless_taken_back(part, thread_safe, tmp_path):
    watch: Any = Meeting() if thread_safe is None else Occupancy()
    arguments = arguments_of(part, watch, tmp_path, thread_safe=True)
    assert read(KERAS, thread_safe=thread_safe, **arguments) == twice(NUMBERS)
    assert watch.met if thread_safe is None else watch.most == 1


def test_attribute_that_is_false_declares_nothing():
    data_set = declared(DeclaredDataSet(Occupancy()), False)
    read(KERAS, source=data_set)
    assert data_set.watch.most == 1


def test_undeclared_code_beside_declared():
    undeclared = Occupancy()
    found = read(KERAS, source=DeclaredDataSet(Occupancy()), transform=Function(undeclared))
    assert found == twice(NUMBERS)
    assert undeclared.most == 1


@NEEDS_MXNET
def test_thread_pool_of_gluon_declares():
    """``thread_pool=True`` says it, as with MXNet's own loader."""
    watch = Meeting()
    assert read(GLUON, source=DataSet(watch)) == twice(NUMBERS)
    assert watch.met


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("wrong", ["yes", 1.5, [True]], ids=str)
def test_argument_of_another_type_is_an_error(wrong, front_end):
    with pytest.raises(TypeError, match="thread_safe"):
        loader_of(front_end, np.arange(LENGTH), BATCH_SIZE, thread_safe=wrong)


@NEEDS_MXNET
@pytest.mark.parametrize("own", ["sampler", "batch_sampler"])
def test_sampler_that_asks_the_data_set_takes_its_turn(own):
    from mxnet.gluon.data import BatchSampler

    watch = Occupancy()
    data_set = DataSet(watch)

    class Asking:
        def __len__(self) -> int:
            return LENGTH

        def __iter__(self) -> Any:
            return (int(data_set[number]) for number in NUMBERS)

    sampler: Any = Asking()
    arguments: dict[str, Any] = {"sampler": sampler}
    if own == "batch_sampler":
        arguments = {"batch_sampler": BatchSampler(sampler, BATCH_SIZE, "keep")}
    size = BATCH_SIZE if own == "sampler" else None
    with loader_of(
        GLUON,
        data_set,
        size,
        workers=EIGHT_THREADS,
        thread_safe=False,
        prefetch=2,
        **arguments,
    ) as loader:
        numbers = np.concatenate(list(batches_of(loader, 2)))
    assert sorted(numbers.tolist()) == twice(NUMBERS)
    assert watch.most == 1


# --- what needs no declaration, and what can't go to processes ---


def said(log: pytest.LogCaptureFixture) -> list[str]:
    """The lines about threads that wait."""
    return [line for line in log_lines(log) if "thread_safe" in line]


def test_log_explains_threads_that_wait_once(log):
    read(KERAS, epochs=3, source=DataSet(Occupancy()))
    (line,) = said(log)
    assert "thread_safe=True" in line.replace(" = ", "=")


@pytest.mark.parametrize("workers", [EIGHT_THREADS, AUTO])
@pytest.mark.parametrize(
    "arguments",
    [
        {"source": NUMBERS},
        {"source": DeclaredDataSet(Unwatched())},
        {"source": DataSet(Unwatched()), "thread_safe": True},
    ],
    ids=["a list", "an attribute", "the argument"],
)
def test_log_says_nothing_of_declared_code(arguments, workers, log):
    read(KERAS, workers, **arguments)
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
def test_package_needs_no_declaration(source, log, tmp_path):
    """Only what follows it is the user's, who has declared it."""
    watch = Meeting()
    known = {
        "array": lambda: np.arange(LENGTH),
        "arrays": lambda: (np.arange(LENGTH), np.arange(LENGTH)),
        "records": lambda: records(tmp_path, declared(Parse(Occupancy()))),
        "images": lambda: images(tmp_path),
    }[source]()
    with loader_of(
        KERAS, known, BATCH_SIZE, workers=EIGHT_THREADS, batch_transform=declared(Function(watch))
    ) as loader:
        list(loader)
    assert watch.met
    assert said(log) == []


@NEEDS_MXNET
def test_mxnet_needs_no_declaration(log):
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
        batch_transform=declared(Function(watch)),
    ) as loader:
        list(loader)
    assert watch.met
    assert said(log) == []


LAYERS: dict[str, Any] = {
    "Rescaling": (lambda keras: keras.layers.Rescaling(1 / 255), True),
    "Pipeline": (
        lambda keras: keras.layers.Pipeline(
            [keras.layers.CenterCrop(4, 4), keras.layers.Rescaling(1 / 255)]
        ),
        True,
    ),
    "with a seed": (lambda keras: keras.layers.RandomFlip(seed=0), False),
    "with variables": (lambda keras: keras.layers.Dense(1), False),
    "Lambda": (lambda keras: keras.layers.Lambda(lambda image: image), False),
    "Activation": (lambda keras: keras.layers.Activation(lambda image: image), False),
    "predict": (
        lambda keras: (
            keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Rescaling(1 / 255)]).predict
        ),
        False,
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer_of_keras_needs_no_declaration_if_it_only_computes(name, log):
    make, known = LAYERS[name]
    images = np.zeros((4 * BATCH_SIZE, 8, 8, 3), np.uint8)
    transform = make(pytest.importorskip("keras"))
    with loader_of(
        KERAS, images, BATCH_SIZE, workers=EIGHT_THREADS, batch_transform=transform
    ) as loader:
        list(loader)
    assert (said(log) == []) == known


HELD = ["Sequential", "Compose", "Lambda", "ArrayDataset", "SimpleDataset"]


@NEEDS_MXNET
@pytest.mark.parametrize("held", HELD)
def test_code_of_the_users_within_mxnets_is_the_users(held):
    """In a block that calls another one, a chain in a chain, a function, and in data sets."""
    import mxnet
    from mxnet.gluon.data import ArrayDataset, SimpleDataset
    from mxnet.gluon.data.vision.transforms import Compose

    within, most = [], []
    with open(os.devnull, "rb") as unpicklable_file:

        def slow(item: Any) -> Any:
            within.append(unpicklable_file)
            time.sleep(0.004)
            most.append(len(within))
            within.pop()
            return item

        class Slow(mxnet.gluon.Block):
            def forward(self, image: Any) -> Any:
                return slow(image)

        source: Any = SimpleDataset(NUMBERS).transform(slow)
        if held == "SimpleDataset":
            source = SimpleDataset(source)
        elif held == "ArrayDataset":
            source = ArrayDataset(source, NUMBERS)
        else:
            block: Any = mxnet.gluon.nn.Sequential()
            if held == "Sequential":
                block.add(Slow())
            elif held == "Compose":
                block = Compose([Compose([Slow()])])
            else:
                own = Slow()
                block = mxnet.gluon.nn.Lambda(lambda image: own(image))
            data = ArrayDataset(mxnet.nd.zeros((LENGTH, 2)), np.arange(LENGTH))
            source = data.transform_first(block)
        with loader_of(GLUON, source, BATCH_SIZE, workers=AUTO) as loader:
            list(batches_of(loader, 2))
    assert most == [1] * (2 * LENGTH)


# --- processes ---


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("thread_safe", [None, True])
@pytest.mark.parametrize("kind", ["a file", "a function over a file"])
def test_unpicklable_code_runs_inline(kind, thread_safe, front_end, log, tmp_path):
    """Processes were asked for: it is never several threads that come instead."""
    # By itself, Gluon's loader may well take threads for what is declared.
    asked = {"thread_pool": False} if front_end == GLUON else {}
    asked |= {"workers": TWO_PROCESSES, "thread_safe": thread_safe}
    with open(tmp_path / "some", "w+b") as file:
        held = file if kind == "a file" else lambda: file.read()
        with loader_of(front_end, Where(held), BATCH_SIZE, **asked) as loader:
            rows = np.concatenate(list(batches_of(loader, 2))).astype(np.int64)
    assert sorted(rows[:, 0].tolist()) == twice(NUMBERS)
    assert {*rows[:, 1].tolist()} == {os.getpid()}
    assert len({*rows[:, 2].tolist()}) == 1
    assert any("inline" in line for line in log_lines(log))


def test_undeclared_code_that_waits_takes_processes():
    """More than there are CPUs, under ``workers="auto"``."""
    processes, deadline = {os.getpid()}, time.monotonic() + 60
    with SafeSequence(Waiting(), BATCH_SIZE, workers="auto") as sequence:
        while len(processes) < 2 + len(os.sched_getaffinity(0)) and time.monotonic() < deadline:
            for batch in sequence:
                processes |= {*batch[:, 1].tolist()}
    assert len(processes) >= 2 + len(os.sched_getaffinity(0))
