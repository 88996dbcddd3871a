"""``SafeSequence`` itself: length, items, passes, epochs, state, copies, closing; subclasses."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from typing import Any

import keras
import numpy as np
import pytest

from adapters import ClosedError, SafeSequence
from tests.engine.executors import wait_until
from tests.keras import recording
from tests.keras.py_datasets import Hooked, Shuffling
from tests.keras.recording import INLINE, TWO_THREADS, after, built_recorder, epochs_of, sequence_of
from tests.keras.samples import numbered
from tests.turns import read_by_threads

pytestmark = pytest.mark.usefixtures("light_workers", "sent_by_value")
BATCHES = 6
SHARED = 101
COUNT, SIZE = 20, 4


def read(sequence: SafeSequence) -> list[list[int]]:
    return [recording.numbers(batch) for batch in sequence]


@pytest.mark.parametrize(
    ("samples", "drop_remainder", "batches"), [(8, False, 2), (9, False, 3), (9, True, 2)]
)
def test_length(samples, drop_remainder, batches):
    sequence = SafeSequence(numbered(samples), 4, drop_remainder=drop_remainder)
    assert (len(sequence), sequence.num_batches) == (batches, batches)
    assert repr(sequence) == f"<SafeSequence of <ArraySource: {samples} samples>, batch_size=4>"


@pytest.mark.parametrize("workers", recording.KINDS_OF_WORKERS)
def test_threads_share_a_pass(workers):
    with SafeSequence(np.arange(SHARED), batch_size=1, shuffle=True, **workers) as sequence:
        for epoch in range(2):
            given = read_by_threads(iter(sequence))
            assert sorted(int(batch[0]) for batch in given) == list(range(SHARED))
            assert sequence.state_dict() == {"epoch": epoch + 1, "batch": 0}


def test_close_within_pass():
    sequence = sequence_of(BATCHES, **TWO_THREADS)
    batches = iter(sequence)
    next(batches)
    sequence.close()
    with pytest.raises(ClosedError):
        list(batches)
    with pytest.raises(ClosedError):
        next(iter(sequence))
    with pytest.raises(ClosedError, match="closed"):
        built_recorder().fit(sequence, verbose=0)


@pytest.mark.parametrize("state", [{"epoch": 0, "batch": 0}, {"epoch": 1, "batch": 2}])
def test_state_set_within_pass(state):
    sequence = sequence_of(BATCHES, **INLINE)
    sequence.set_epoch(2)
    for number, _ in enumerate(sequence):
        if number == 1:
            sequence.set_epoch(state["epoch"])
            if state["batch"]:
                sequence.load_state_dict(state)
    assert (sequence.state_dict(), len(list(sequence))) == (state, BATCHES - state["batch"])


# --- a loop over items, which says by ``on_epoch_end()`` that it is over ---


def shuffled(**options: Any) -> SafeSequence:
    return SafeSequence(numbered(COUNT), SIZE, shuffle=True, seed=5, **options)


def rows(batches: Any) -> list[float]:
    return [float(x) for features, _ in batches for x in np.ravel(features)]


def by_number(sequence: Any) -> list[float]:
    found = rows([sequence[index] for index in range(len(sequence))])
    sequence.on_epoch_end()
    return found


@pytest.fixture
def orders() -> list[list[float]]:
    with shuffled() as sequence:
        return [rows(sequence) for _ in range(5)]


@pytest.mark.parametrize("workers", recording.KINDS_OF_WORKERS)
def test_loop_has_the_orders_of_passes(orders, workers):
    with shuffled(**workers) as sequence:
        sequence.load_state_dict({"epoch": 1, "batch": 2})
        assert [by_number(sequence) for _ in range(2)] == orders[1:3]
        assert (sequence.epoch, sequence.state_dict()) == (3, {"epoch": 3, "batch": 0})
        assert rows(sequence) == orders[3]


def test_on_epoch_end_after_a_pass(orders):
    with shuffled() as sequence:
        found = []
        for _ in range(3):
            found.append(rows(sequence))
            sequence.on_epoch_end()
        assert (found, sequence.epoch) == (orders[:3], 3)
        zipped = [batch for _, batch in zip(range(len(sequence)), sequence)]  # Without asking on.
        sequence.on_epoch_end()
        assert (rows(zipped), sequence.epoch) == (orders[3], 4)
        sequence.on_epoch_end()
        assert sequence.epoch == 5


def test_item_within_a_pass(orders):
    with shuffled() as sequence:
        found = []
        for batch in sequence:
            sequence[0]
            found.append(batch)
        sequence.on_epoch_end()
        assert (rows(found), sequence.epoch) == (orders[0], 1)


def test_on_epoch_end_within_a_pass(orders):
    with shuffled() as sequence:
        next(iter(sequence))
        sequence.on_epoch_end()
        assert rows(sequence) == orders[1]


def test_on_epoch_end_in_callback(orders):
    model, looped = built_recorder(), []
    with shuffled() as sequence, shuffled() as validation, shuffled() as other:

        def end(epoch: int, logs: Any) -> None:
            sequence.on_epoch_end()
            validation.on_epoch_end()
            looped.append(by_number(other))

        told = keras.callbacks.LambdaCallback(on_epoch_end=end)
        model.fit(sequence, validation_data=validation, epochs=3, callbacks=[told], verbose=0)
        assert sequence.epoch == 3
        assert rows(model.lists.trained) == [row for order in orders[:3] for row in order]
        assert looped == orders[:3]
        model.evaluate(sequence, verbose=0)
        model.predict(sequence, verbose=0)
        assert sequence.epoch == 5


@pytest.mark.parametrize("batches", [3, None], ids=["an end", "none"])
def test_hooks_of_source_in_loop(batches):
    class Source(Hooked):
        num_batches = batches

    source = Source(3)
    with SafeSequence(source, workers=0) as sequence:
        for _ in range(2):
            sequence[0], sequence[1]
            sequence.on_epoch_end()
    assert source.calls == ["begin", "end", "begin", "end", "begin"]


@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS])
def test_source_shuffles_itself_in_loop(workers):
    with SafeSequence(Shuffling(3), **workers) as sequence:
        expected = [rows(sequence) for _ in range(3)]
    with SafeSequence(Shuffling(3), **workers) as sequence:
        assert [by_number(sequence) for _ in range(3)] == expected


# --- copies; an owner has the sequence, and a method of it is the transform ---


def pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("copied", "workers"),
    [(copy.copy, recording.PROCESSES), (copy.deepcopy, INLINE), (pickled, TWO_THREADS)],
)
def test_copy_has_a_state_and_an_end_of_its_own(copied, workers):
    with sequence_of(BATCHES, shuffle=True, seed=3, max_queue_size=3, **workers) as sequence:
        sequence.load_state_dict({"epoch": 2, "batch": 3})
        batches = iter(sequence)
        next(batches)
        with copied(sequence) as another:
            for name in ("workers", "use_multiprocessing", "max_queue_size", "num_batches"):
                assert getattr(another, name) == getattr(sequence, name), name
            found = read(another)
            assert (another.epoch, sequence.epoch) == (3, 2)
        expected = epochs_of(copied(sequence), 1, first=2)
        # A new pass is that which was broken off.
        assert found == expected[3:]
        assert [recording.numbers(batch) for batch in batches] == expected[4:]


@pytest.mark.one_backend
def test_pickle_takes_epoch_of_source():
    with SafeSequence(Shuffling(3), workers=0) as sequence:
        for _ in range(2):
            list(sequence)
        with pickled(sequence) as another:
            assert [int(labels[0, 0]) for _, labels in another] == [2, 2, 2]


class Data:
    def __init__(self, **options: Any) -> None:
        self.factor = 3
        self.sequence = SafeSequence(np.arange(5), 1, transform=self.multiplied, **options)

    def multiplied(self, sample: Any) -> Any:
        return sample * self.factor + 100 * len(self.sequence)

    def values(self) -> list[int]:
        return [int(batch[0]) for batch in self.sequence]


@pytest.mark.one_backend
@pytest.mark.parametrize("workers", recording.KINDS_OF_WORKERS)
def test_method_of_owner_uses_sequence(workers):
    data = Data(**workers)
    with data.sequence:
        assert data.values() == [500, 503, 506, 509, 512]


@pytest.mark.one_backend
@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_copy_of_owner(copied):
    data = Data(**TWO_THREADS)
    another = copied(data)
    another.factor = 5
    with data.sequence, another.sequence:
        assert another.values() == [500, 505, 510, 515, 520]
        assert data.values() == [500, 503, 506, 509, 512]


@pytest.mark.one_backend
@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS])
def test_owner_is_collected(workers):
    data = Data(**workers)
    next(iter(data.sequence))
    gone = weakref.ref(data)
    del data

    def collected() -> bool:
        gc.collect()  # Once its threads have done what they were at.
        names = {thread.name for thread in threading.enumerate()}
        return gone() is None and not any(name.startswith("adapters-worker") for name in names)

    wait_until(collected)


# --- subclasses: hooks between epochs, and methods that may not be overridden ---


class Label:
    ended = 0

    def __call__(self, sample: Any) -> Any:
        return sample[0], sample[1] * 0 + self.ended


class Subclass(SafeSequence):
    def __init__(self, **options: Any) -> None:
        self.calls: list[str] = []
        self.label = Label()
        super().__init__(numbered(4 * BATCHES), 4, transform=self.label, **options)

    def on_epoch_begin(self) -> None:
        self.calls.append("begin")

    def on_epoch_end(self) -> None:
        super().on_epoch_end()
        self.calls.append("end")
        self.label.ended += 1


def labels(batches: list[Any]) -> list[int]:
    return [int(label) for _, column in batches for label in column[:1, 0]]


EPOCHS = [0] * BATCHES + [1] * BATCHES + [2] * BATCHES


@pytest.mark.parametrize(
    ("workers", "model"),
    [
        (INLINE, recording.Recorder),
        (TWO_THREADS, built_recorder),
        (recording.PROCESSES, built_recorder),
        (recording.AUTO, recording.Recorder),
    ],
)
def test_hooks_of_fit(workers, model):
    """Each is called once an epoch, and no batch is made before the hook that changes it."""
    recorder = model()
    with Subclass(**workers) as sequence:
        recorder.fit(sequence, epochs=3, verbose=0)
        assert sequence.calls == 3 * ["begin", "end"]
    assert labels(recorder.lists.trained) == EPOCHS


def test_hooks_of_evaluate_and_loop():
    with Subclass(**TWO_THREADS) as sequence:
        built_recorder().evaluate(sequence, verbose=0)
        found = labels(list(sequence))
        assert (sequence.calls, found) == (2 * ["begin", "end"], [1] * BATCHES)


def test_hooks_of_a_replayed_epoch():
    recorder = built_recorder()
    with Subclass(**TWO_THREADS) as sequence:
        recorder.fit(sequence, callbacks=[after(2, recording.stop)], verbose=0)
        recorder.fit(sequence, verbose=0)
        assert sequence.calls == ["begin", "end"]


class WithHooks(SafeSequence):
    """Writes down its hooks; as stock classes do, it calls those of its base."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.calls: list[str] = []
        self.on_epoch_end()  # As stock classes do, to shuffle for the first time.
        super().__init__(*args, **options)

    def on_epoch_begin(self) -> None:
        super().on_epoch_begin()
        self.calls.append(f"begin {self.epoch}")

    def on_epoch_end(self) -> None:
        self.calls.append("end")
        if len(self.calls) > 1:
            super().on_epoch_end()


@pytest.mark.parametrize("begins", [False, True])
def test_hooks_in_own_loop(begins):
    options = {"shuffle": True, "seed": 5}
    with WithHooks(numbered(4 * BATCHES), 4, **options, **TWO_THREADS) as sequence:
        found, plain = [], SafeSequence(numbered(4 * BATCHES), 4, **options)
        for _ in range(2):
            if begins:
                sequence.on_epoch_begin()
            found += [recording.numbers(sequence[index]) for index in range(BATCHES)]
            sequence.on_epoch_end()
        assert found == epochs_of(plain, 2)
        assert sequence.calls == ["end", "begin 0", "end", "begin 1", "end"]
        assert [recording.numbers(batch) for batch in sequence] == epochs_of(plain, 1, first=2)
        sequence.on_epoch_end()
        assert sequence.calls[5:] == ["begin 2", "end"]


def test_hooks_as_source_of_another():
    with Subclass() as inner, SafeSequence(inner, **TWO_THREADS) as sequence:
        found = [label for _ in range(2) for label in labels(list(sequence))]
        assert (inner.calls[:3], found) == (["begin", "end", "begin"], EPOCHS[: 2 * BATCHES])


FIXED = ["__getitem__", "__iter__", "__len__", "num_batches"]
FIXED += ["workers", "use_multiprocessing", "max_queue_size"]


@pytest.mark.parametrize("name", FIXED)
def test_override_refused(name):
    message = rf"must not override {name}, as Mine does: .*batch_transform.*PyDataset and wrap it"
    with pytest.raises(TypeError, match=message):
        type("Mine", (SafeSequence,), {name: lambda self, *_: None})


def test_override_by_mixin_refused():
    mixin = type("Mixin", (), {"__getitem__": lambda self, index: index})
    with pytest.raises(TypeError, match="must not override __getitem__"):
        type("Mine", (mixin, SafeSequence), {})
