"""One row of the sleeping data set: 32 items each of which waits, and nothing else.

As an item needs no processor, N workers could be N times as fast as none, on any number of cores;
what a loader makes of that is what its handing over leaves of it. Batches are of one item, so that
32 items are enough for all workers. A pass is all items once. Its clock runs from the asking for
the first item to the last one's arrival. Passes before it go on until every worker has given an
item, as fresh processes take seconds to start where they import a framework. PyDataset starts new
ones in every pass, on the clock.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness.row import Measurement

ITEMS = 32
WARM_UP_SECONDS = 15.0  # at most, where workers are never all seen

# Gives, pass by pass, an iterable of batches.
Passes = Callable[[], Iterable[Any]]


class Sleeping:
    """A data set whose items wait, and do nothing else.

    Args:
        wait_seconds: Of each.
    """

    def __init__(self, wait_seconds: float) -> None:
        self.wait_seconds = wait_seconds

    def __len__(self) -> int:
        """How many items."""
        return ITEMS

    def __getitem__(self, number: int) -> npt.NDArray[np.float32]:
        """Its number and the thread that gave it, unique over processes: float32 (2,)."""
        time.sleep(self.wait_seconds)
        return np.array([number, threading.get_native_id()], np.float32)


def ideal_speed(workers: int, wait_seconds: float) -> float:
    """Items per second of so many workers that wait at once; 0 is in the loop's own thread."""
    return ITEMS / (math.ceil(ITEMS / max(workers, 1)) * wait_seconds)


def _queue_size(workers: int | str) -> int:
    """Keras's own, or a batch for each worker: fewer batches than workers let some do nothing."""
    return 10 if workers == "auto" else max(10, int(workers))


def _safe_sequence(
    items: Sleeping, workers: Any, stack: ExitStack, processes: bool = False
) -> Passes:
    from adapters import SafeSequence

    loader = SafeSequence(
        items,
        1,
        workers=workers,
        use_multiprocessing=processes,
        max_queue_size=_queue_size(workers),
        thread_safe=True,
    )
    stack.enter_context(loader)
    return lambda: loader


def _gluon_loader(items: Sleeping, workers: Any, stack: ExitStack, threads: Any) -> Passes:
    from adapters import gluon_loader

    given = {"num_workers": workers, "thread_pool": threads}
    loader = gluon_loader(items, 1, **given, thread_safe=True)
    stack.enter_context(loader)
    return lambda: loader


def _py_dataset(items: Sleeping, workers: int, stack: ExitStack, processes: bool = False) -> Passes:
    """Read by Keras's own adapter, as `fit` reads it."""
    import keras
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return ITEMS

        def __getitem__(self, index: int) -> tuple[Any]:
            return (items[index][None],)

    batches = Batches(
        workers=workers, use_multiprocessing=processes, max_queue_size=_queue_size(workers)
    )
    adapter = PyDatasetAdapter(batches)

    def one_pass() -> Iterator[Any]:
        adapter.on_epoch_begin()
        try:
            yield from adapter._get_iterator()
        finally:
            adapter.on_epoch_end()

    return one_pass


def _tf_data(items: Sleeping, workers: int, stack: ExitStack) -> Passes:
    import tensorflow as tf

    def load(number: Any) -> Any:
        return tf.numpy_function(items.__getitem__, [number], tf.float32)

    data = tf.data.Dataset.range(ITEMS).map(load, num_parallel_calls=workers or None).batch(1)
    if workers:
        # Functions in Python run on these threads, of which there are as many as cores otherwise.
        options = tf.data.Options()
        options.threading.private_threadpool_size = workers
        data = data.with_options(options)
    return lambda: data


def _mxnet_loader(items: Sleeping, workers: int, stack: ExitStack, threads: bool) -> Passes:
    from adapters.gluon import import_mxnet

    loader = import_mxnet().gluon.data.DataLoader(
        items, 1, num_workers=workers, thread_pool=threads
    )
    return lambda: loader


@dataclass(frozen=True)
class Contestant:
    """A loader.

    Args:
        framework: Its group in the table.
        library: The module that it needs, and whose version the table names.
        make: From the data set, the number of workers and a stack for what must be closed, to its
            passes.
        ours: Whether it is this package's.
        inline: Whether it does without workers; of twins, one does.
    """

    framework: str
    library: str
    make: Callable[[Sleeping, Any, ExitStack], Passes]
    ours: bool = False
    inline: bool = True


CONTESTANTS = {
    "SafeSequence threads": Contestant("Keras", "keras", _safe_sequence, ours=True),
    "SafeSequence processes": Contestant(
        "Keras", "keras", partial(_safe_sequence, processes=True), ours=True, inline=False
    ),
    "PyDataset threads": Contestant("Keras", "keras", _py_dataset),
    "PyDataset processes": Contestant(
        "Keras", "keras", partial(_py_dataset, processes=True), inline=False
    ),
    "tf.data": Contestant("Keras", "tensorflow", _tf_data),
    "gluon_loader threads": Contestant(
        "Gluon", "mxnet", partial(_gluon_loader, threads=True), ours=True
    ),
    "gluon_loader processes": Contestant(
        "Gluon", "mxnet", partial(_gluon_loader, threads=False), ours=True, inline=False
    ),
    "DataLoader threads": Contestant("Gluon", "mxnet", partial(_mxnet_loader, threads=True)),
    "DataLoader processes": Contestant(
        "Gluon", "mxnet", partial(_mxnet_loader, threads=False), inline=False
    ),
}
# They choose the kind of their workers themselves.
AUTO = {
    "SafeSequence auto": Contestant("Keras", "keras", _safe_sequence, ours=True),
    "gluon_loader auto": Contestant(
        "Gluon", "mxnet", partial(_gluon_loader, threads="auto"), ours=True
    ),
}


def measure(options: Mapping[str, Any]) -> Measurement:
    """One row.

    Args:
        options: `loader`, `workers`, `wait_seconds`, and how many `passes` are measured.
    """
    os.environ["KERAS_BACKEND"] = "jax"  # Nothing trains; it is the fastest to import.
    contestant = {**CONTESTANTS, **AUTO}[options["loader"]]
    workers, wait_seconds = options["workers"], options["wait_seconds"]
    began = time.monotonic()
    with ExitStack() as stack:
        passes = contestant.make(Sleeping(wait_seconds), workers, stack)
        if workers != 0:
            _warm_up(passes, workers)
        speeds = [ITEMS / _one_pass(passes())[0] for _ in range(options["passes"])]
    speed = statistics.median(speeds)
    metrics, rounds = {"samples_per_second": speed}, {"samples_per_second": speeds}
    if workers != "auto":
        ideal = ideal_speed(workers, wait_seconds)
        metrics["ideal_share"] = speed / ideal
        rounds["ideal_share"] = [each / ideal for each in speeds]
    return {
        "software": f"{contestant.library} {_version(contestant.library)}",
        "device": "the CPU",
        "metrics": metrics,
        "window": (began, time.monotonic()),
        "rounds": rounds,
    }


def _warm_up(passes: Passes, workers: int | str) -> None:
    """Pass after pass until all workers have given something; "auto" takes a pass to choose."""
    began, seen, wanted = time.monotonic(), set[int](), 1 if workers == "auto" else workers
    while len(seen) < wanted and time.monotonic() < began + WARM_UP_SECONDS:
        seen |= _one_pass(passes())[1]


def _one_pass(batches: Iterable[Any]) -> tuple[float, set[int]]:
    """How long a pass takes, and who gave its items, all of which must come once and in order."""
    items = []
    began = time.perf_counter()
    for batch in batches:
        items.append(_item(batch))
    seconds = time.perf_counter() - began
    numbers = [number for number, _ in items]
    if numbers != list(range(ITEMS)):
        raise ValueError(f"a pass must give the items 0 to {ITEMS - 1} in order, got {numbers}")
    return seconds, {thread for _, thread in items}


def _item(batch: Any) -> list[int]:
    """The number and the thread of the only item in any loader's batch."""
    while isinstance(batch, (list, tuple)):
        batch = batch[0]
    array = batch.asnumpy() if hasattr(batch, "asnumpy") else np.asarray(batch)
    return [int(each) for each in array.ravel()]


def _version(library: str) -> str:
    # TensorFlow's distribution has several names, and Grain's module doesn't tell.
    told = getattr(sys.modules[library], "__version__", None)
    return told or importlib.metadata.version(library)
