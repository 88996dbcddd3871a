"""One row of duplicates and races: which samples arrive, how often and in which order.

The data are 160 numbered samples in 40 batches, some of which take longer than others, so that
workers overtake each other. Two epochs of `fit`, without its shuffle, then `evaluate`, and
`predict`, each with a model of its own that isn't built yet and a data set of its own, must see all
samples in order. All of that is done twice with equal seeds. What went wrong is counted in samples;
of a call that ends with an exception, only that is counted.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, chain, count, pairwise, zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness.row import Measurement

BATCH_SIZE, BATCHES, EPOCHS = 4, 40, 2
SAMPLES = BATCH_SIZE * BATCHES
SEED = 1
LONGEST_SECONDS = 0.004
FAULTS = ("repeated", "lost", "out_of_order", "differing")
ERROR = "error "  # Begins the keys of metrics that count exceptions by type.

Numbers = list[int]
# From whether labels are wanted and how many workers, to what `fit` takes.
Loader = Callable[[bool, int], Any]


def batch_of(number: int, labels: bool) -> tuple[npt.NDArray[np.float32], ...]:
    """A batch, after a time that differs from that of the batches beside it."""
    time.sleep(number * 7 % 5 / 4 * LONGEST_SECONDS)
    features = np.arange(number * BATCH_SIZE, (number + 1) * BATCH_SIZE, dtype=np.float32)
    return (features[:, None], -features[:, None]) if labels else (features[:, None],)


class Delayed:
    """The same for a batch that is there already; a class, for worker processes to import."""

    def __call__(self, batch: Any) -> Any:
        """The batch as it is."""
        features = batch[0]
        batch_of(int(features[0, 0]) // BATCH_SIZE, False)
        return batch


def _safe_sequence(labels: bool, workers: int, processes: bool) -> Any:
    from adapters import SafeSequence

    features = np.arange(SAMPLES, dtype=np.float32)[:, None]
    source = (features, -features) if labels else (features,)
    return SafeSequence(
        source,
        BATCH_SIZE,
        batch_transform=Delayed(),
        seed=SEED,
        workers=workers,
        use_multiprocessing=processes,
        thread_safe=True,
    )


def _py_dataset(labels: bool, workers: int, processes: bool) -> Any:
    import keras

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]
        """What a Keras user writes."""

        def __len__(self) -> int:
            return BATCHES

        def __getitem__(self, index: int) -> Any:
            return batch_of(index, labels)

    return Batches(workers=workers, use_multiprocessing=processes)


def _generator(labels: bool, workers: int) -> Iterator[Any]:
    """Endless, as Keras asks for; it has no workers for one."""
    for number in count():
        yield batch_of(number % BATCHES, labels)


def _shared_generator(labels: bool, workers: int) -> Iterator[Any]:
    """Threads that all take from one generator, as Keras 2 did and as people still write it."""
    source = _generator(labels, 1)
    ready: queue.Queue[Any] = queue.Queue(10)

    def work() -> None:
        while True:
            try:
                ready.put(next(source))
            except Exception as error:
                ready.put(error)
                return

    for _ in range(workers):
        # They wait for room in the queue for ever.
        threading.Thread(target=work, daemon=True).start()
    while True:
        batch = ready.get()
        if isinstance(batch, Exception):
            raise batch
        yield batch


CONTESTANTS: dict[str, Loader] = {
    "SafeSequence threads": partial(_safe_sequence, processes=False),
    "SafeSequence processes": partial(_safe_sequence, processes=True),
    "PyDataset threads": partial(_py_dataset, processes=False),
    "PyDataset processes": partial(_py_dataset, processes=True),
    "generator": _generator,
    "generator, in threads": _shared_generator,
}


def measure(options: Mapping[str, Any]) -> Measurement:
    """One row.

    Args:
        options: `loader`, `workers` and `backend`, Keras's.
    """
    os.environ["KERAS_BACKEND"] = options["backend"]
    from benchmarks.harness.keras_training import describe_device, describe_software

    load = partial(CONTESTANTS[options["loader"]], workers=options["workers"])
    # Endless, so Keras must be told.
    steps = BATCHES if options["loader"].startswith("generator") else None
    began = time.monotonic()
    runs = [_calls(load, steps) for _ in range(2)]
    found = Counter(dict.fromkeys([*FAULTS, "errors"], 0))
    for run in runs:
        for outcome in run:
            if isinstance(outcome, str):
                found.update(["errors", ERROR + outcome])
            else:
                for epoch in outcome:
                    found.update(faults_of(epoch))
    for first, second in zip(*runs):
        if isinstance(first, str) or isinstance(second, str):
            continue
        pairs = zip_longest(chain.from_iterable(first), chain.from_iterable(second))
        found["differing"] += sum(one != other for one, other in pairs)
    return {
        "software": describe_software(),
        "device": describe_device(),
        "metrics": {
            **{key: float(number) for key, number in found.items()},
            "faults": float(sum(found[key] for key in (*FAULTS, "errors"))),
        },
        "window": (began, time.monotonic()),
    }


def faults_of(seen: Numbers) -> dict[str, int]:
    """What is wrong with an epoch that should have been 0, 1, 2 ...: samples by kind of fault.

    A sample is out of order if it first arrived after a larger one did.
    """
    first = list(dict.fromkeys(seen))
    return {
        "repeated": len(seen) - len(first),
        "lost": SAMPLES - len(first),
        "out_of_order": sum(
            number < largest for number, largest in zip(first[1:], accumulate(first, max))
        ),
    }


def _calls(load: Callable[..., Any], steps: int | None) -> list[list[Numbers] | str]:
    """The epochs that `fit`, `evaluate` and `predict` saw, or the type of what they raised."""
    import keras

    keras.utils.set_random_seed(SEED)

    def fit() -> list[Numbers]:
        recorder = _recorder()
        ends: Numbers = []
        note_end = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: ends.append(len(recorder.seen.numbers))
        )
        with _closing(load(True)) as data:
            recorder.fit(
                data,
                epochs=EPOCHS,
                steps_per_epoch=steps,
                shuffle=False,
                callbacks=[note_end],
                verbose=0,
            )
        return [recorder.seen.numbers[begin:end] for begin, end in pairwise([0, *ends])]

    def evaluate() -> list[Numbers]:
        recorder = _recorder()
        with _closing(load(True)) as data:
            recorder.evaluate(data, steps=steps, verbose=0)
        return [recorder.seen.numbers]

    def predict() -> list[Numbers]:
        echo = keras.Sequential([keras.layers.Activation("linear")])
        with _closing(load(False)) as data:
            return [[int(number) for number in echo.predict(data, steps=steps, verbose=0).ravel()]]

    outcomes: list[list[Numbers] | str] = []
    for call in (fit, evaluate, predict):
        try:
            outcomes.append(call())
        except Exception as error:
            outcomes.append(type(error).__name__)
    return outcomes


@contextmanager
def _closing(data: Any) -> Iterator[Any]:
    """Close what can be closed at the end."""
    try:
        yield data
    finally:
        if hasattr(data, "close"):
            data.close()


class Seen:
    """Sample numbers; in an object of its own, as Keras would track a list of the model's."""

    def __init__(self) -> None:
        self.numbers: Numbers = []


def _recorder() -> Any:
    """A model that trains nothing and keeps the sample numbers that reach its steps, in `seen`."""
    import keras

    class Recorder(keras.Model):  # type: ignore[misc]
        """Its steps are Python, and so see arrays, not the symbols that stand for them."""

        def __init__(self) -> None:
            super().__init__()
            self.seen = Seen()
            self.layer = keras.layers.Dense(1)
            self.compile(optimizer="sgd", loss="mse", run_eagerly=True)

        def call(self, inputs: Any) -> Any:
            return self.layer(inputs)

        def train_step(self, *arguments: Any) -> Any:
            features = keras.ops.convert_to_numpy(arguments[-1][0])
            self.seen.numbers += [int(number) for number in features.ravel()]
            logs = {"loss": 0.0}
            # On JAX, a step takes the state and the batch, and gives both.
            return (logs, arguments[0]) if keras.backend.backend() == "jax" else logs

        test_step = train_step

    return Recorder()
