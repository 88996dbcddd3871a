"""Batches that are on the trainer's device before it asks for them: the same ones, counted alike.

Forced here, as there is a GPU on few machines; groups are small, as the batches of tests are few.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from adapters import ClosedError, SafeSequence
from adapters.keras import device
from adapters.structure import map_leaves
from tests.keras.recording import (
    AUTO,
    BACKEND,
    INLINE,
    KINDS_OF_WORKERS,
    TWO_THREADS,
    AfterBatch,
    Recorder,
    built_recorder,
    epochs_of,
    sequence_of,
)
from tests.keras.samples import BATCH_SIZE, FailsAt, Unreadable, numbered

# Keras 3.6 copies the batches itself: its EpochIterator has no _get_iterator.
pytestmark = pytest.mark.one_keras
BATCHES = 17
ON_JAX = pytest.mark.skipif(BACKEND != "jax", reason="of JAX alone")


@pytest.fixture
def sent(monkeypatch) -> list[int]:
    """Batches of each transfer; staging is on, where the backend is JAX."""
    monkeypatch.setenv("ADAPTERS_STAGING", "1")
    monkeypatch.setattr(device, "MOST_BATCHES", 3)
    monkeypatch.setattr(device, "LEAST_BATCHES", 0)
    # A machine that is busy must not make the batches slow.
    monkeypatch.setattr(device, "_QUICK_SECONDS", 60)
    sizes: list[int] = []
    start = device.Transfer.start

    def noted(self: Any, batches: list[Any]) -> Any:
        sizes.append(len(batches))
        return start(self, batches)

    monkeypatch.setattr(device.Transfer, "start", noted)
    return sizes


def structured(sample: Any) -> Any:
    number = int(sample[0][0])
    inputs = {
        "wide": np.arange(6, dtype=np.float32).reshape(2, 3) / (number + 3),
        "bytes": np.full((5,), number % 251, np.uint8),
        "half": np.float16(number),
        "flag": np.bool_(number % 2),
    }
    return inputs, np.int32(number), np.float32(1 / (number + 1))


@ON_JAX
@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_values_dtypes_and_structures_are_those_of_batches_that_are_not_ahead(
    workers, sent, monkeypatch
):
    kept = []
    for wanted in ("0", "1"):
        monkeypatch.setenv("ADAPTERS_STAGING", wanted)
        recorder, count = Recorder(), BATCHES * BATCH_SIZE - 3
        with SafeSequence(
            numbered(count), BATCH_SIZE, transform=structured, shuffle=True, seed=3, **workers
        ) as sequence:
            recorder.fit(sequence, epochs=2, verbose=0)
        kept.append(recorder.lists.trained)
    plain, staged = kept
    assert len(plain) == len(staged) == 2 * BATCHES
    for one, other in zip(plain, staged):
        keras.tree.assert_same_structure(one, other)
        for a, b in zip(keras.tree.flatten(one), keras.tree.flatten(other)):
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if workers is INLINE:
        assert sent.count(3) >= 4


@ON_JAX
def test_batches_of_other_shapes_end_a_group(sent):
    def cut(batch: Any) -> Any:
        features, labels = batch
        width = 2 if 5 <= features[0, 0] // BATCH_SIZE < 9 else 3
        return np.repeat(features, width, 1), labels

    recorder = Recorder()
    sequence = SafeSequence(numbered(BATCHES * BATCH_SIZE), BATCH_SIZE, batch_transform=cut)
    recorder.fit(sequence, shuffle=False, verbose=0)
    firsts = [batch[0][0, 0] // BATCH_SIZE for batch in recorder.lists.trained]
    widths = [batch[0].shape[1] for batch in recorder.lists.trained]
    assert firsts == list(range(BATCHES))
    assert widths == [2 if 5 <= number < 9 else 3 for number in range(BATCHES)]
    assert 3 in sent


@ON_JAX
@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS, AUTO])
def test_what_is_ahead_is_not_counted(workers, sent):
    states: list[int] = []
    with sequence_of(BATCHES, **workers) as sequence:
        look = AfterBatch(lambda model, count: states.append(sequence.state_dict()["batch"]))
        built_recorder().fit(sequence, callbacks=[look], verbose=0)
        assert sequence.epoch == 1
    assert states[:-1] == list(range(1, BATCHES))
    if workers is INLINE:
        assert 3 in sent


@ON_JAX
def test_a_training_that_is_stopped_begins_its_epoch_again(sent):
    recorder = built_recorder()
    sequence = sequence_of(BATCHES, shuffle=True, **INLINE)

    def stop(model: keras.Model, count: int) -> None:
        model.stop_training = count == 10

    recorder.fit(sequence, callbacks=[AfterBatch(stop)], verbose=0)
    recorder.fit(sequence, epochs=2, verbose=0)
    epochs = epochs_of(sequence, 2)
    assert 3 in sent
    assert recorder.trained == epochs[:10] + epochs


@ON_JAX
def test_a_state_of_the_middle_of_a_group_continues_there(sent):
    states: list[dict[str, Any]] = []
    recorder, sequence = built_recorder(), sequence_of(BATCHES, shuffle=True, **INLINE)
    look = AfterBatch(lambda model, count: states.append(sequence.state_dict()))
    recorder.fit(sequence, callbacks=[look], verbose=0)
    rest, again = built_recorder(), sequence_of(BATCHES, shuffle=True, **INLINE)
    again.load_state_dict(states[9])
    rest.fit(again, verbose=0)
    assert rest.trained == recorder.trained[10:]


@ON_JAX
def test_epochs_of_so_many_steps_follow_on_each_other(sent):
    recorder, sequence = built_recorder(), sequence_of(BATCHES, shuffle=True, **INLINE)
    recorder.fit(sequence, epochs=4, steps_per_epoch=10, verbose=0)
    position = sequence.state_dict()
    assert recorder.trained == epochs_of(sequence, 3)[:40]
    assert (position["epoch"], position["batch"]) == (2, 40 - 2 * BATCHES)
    assert 3 in sent


@ON_JAX
@pytest.mark.parametrize("call", ["fit", "evaluate"])
def test_an_error_comes_in_its_batchs_place(call, sent):
    failing, recorder = 11, built_recorder()
    sequence = SafeSequence(
        numbered(BATCHES * BATCH_SIZE),
        BATCH_SIZE,
        transform=FailsAt(failing * BATCH_SIZE),
        **INLINE,
    )
    options: dict[str, Any] = {"shuffle": False} if call == "fit" else {}
    with pytest.raises(Unreadable):
        getattr(recorder, call)(sequence, verbose=0, **options)
    reached = recorder.trained if call == "fit" else recorder.tested
    assert len(reached) == failing
    assert sequence.state_dict()["batch"] == failing
    assert 3 in sent


@ON_JAX
def test_a_sequence_that_is_closed_gives_no_more_batches(sent):
    recorder, sequence = built_recorder(), sequence_of(BATCHES, **INLINE)
    close = AfterBatch(lambda model, count: sequence.close() if count == 10 else None)
    with pytest.raises(ClosedError):
        recorder.fit(sequence, callbacks=[close], verbose=0)
    assert len(recorder.trained) == 10


@ON_JAX
def test_a_model_that_is_compiled_trains_to_the_same_weights(sent, monkeypatch):
    weights = []
    for wanted in ("0", "1"):
        monkeypatch.setenv("ADAPTERS_STAGING", wanted)
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse", steps_per_execution=4)
        count = BATCHES * BATCH_SIZE - 1
        model.fit(
            SafeSequence(
                (np.linspace(0, 1, count, dtype=np.float32)[:, None], np.ones((count, 3))), 4
            ),
            epochs=2,
            verbose=0,
        )
        weights.append(model.get_weights())
    for one, other in zip(*weights):
        np.testing.assert_array_equal(one, other)
    assert 3 in sent


@ON_JAX
def test_no_more_share_a_transfer_than_the_queue_may_hold(sent):
    with sequence_of(BATCHES, max_queue_size=2, **INLINE) as sequence:
        built_recorder().fit(sequence, verbose=0)
    assert set(sent) == {1, 2}


@ON_JAX
@pytest.mark.parametrize("wanted", ["", "0", "1"])
def test_it_is_off_on_a_cpu_and_under_a_distribution(wanted, monkeypatch):
    monkeypatch.setattr("jax.default_backend", lambda: "cpu")
    monkeypatch.setenv("ADAPTERS_STAGING", wanted)
    assert (device.jax_transfer(1000, 10) is not None) == (wanted == "1")
    with keras.distribution.DataParallel().scope():
        assert device.jax_transfer(1000, 10) is None


# --- whatever the backend ---


class Noted:
    """Sends nothing; notes what it was given at once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.sent: list[int] = []

    def kind(self, batch: Any) -> tuple[Any, int]:
        return None, self.most

    def start(self, batches: list[Any]) -> Any:
        self.sent.append(len(batches))
        return iter(batches)


@pytest.mark.parametrize("most", [1, 2, 4])
def test_batches_come_in_order_and_no_more_than_a_group_is_ahead(most, monkeypatch):
    monkeypatch.setattr(device, "_QUICK_SECONDS", 60)
    numbers, fetched, ahead = iter(range(40)), [], []
    transfer = Noted(most)
    staged = device.Staged(transfer)

    def fetch() -> int:
        fetched.append(next(numbers))
        return fetched[-1]

    taken = []
    for _ in range(40):
        taken.append(staged.next(fetch, lambda: len(fetched) < 40))
        ahead.append(len(fetched) - len(taken))
        assert staged.ahead == ahead[-1]
    assert taken == list(range(40))
    assert (ahead[0], max(ahead)) == (0, most if most > 1 else 0)
    assert max(transfer.sent) == most


def test_batches_that_are_slow_or_not_there_are_not_waited_for_ahead(monkeypatch):
    numbers = iter(range(20))
    staged = device.Staged(Noted(4))
    monkeypatch.setattr(device, "_QUICK_SECONDS", -1)
    assert [staged.next(lambda: next(numbers), lambda: True) for _ in range(5)] == list(range(5))
    monkeypatch.setattr(device, "_QUICK_SECONDS", 60)
    assert [staged.next(lambda: next(numbers), lambda: False) for _ in range(5)] == [5, 6, 7, 8, 9]
    assert next(numbers) == 10


@pytest.mark.skipif(BACKEND != "torch", reason="of PyTorch alone")
def test_tensors_from_pinned_memory_are_those_that_keras_makes(monkeypatch):
    import torch

    dtypes: list[Any] = []

    def stand_in(shape: tuple[int, ...], dtype: Any) -> Any:
        dtypes.append(dtype)
        return torch.empty(shape, dtype=dtype)

    monkeypatch.setattr(device, "pinned", stand_in)
    kept: list[Any] = []
    for copied in (device.for_torch, lambda batch: map_leaves(device._pinned_copy, batch)):
        monkeypatch.setattr("adapters.keras.adapter.for_torch", copied)
        recorder = Recorder(on_host=False)
        with SafeSequence(numbered(29), BATCH_SIZE, transform=structured) as sequence:
            recorder.fit(sequence, verbose=0)
        kept.append(recorder.lists.trained)
    for one, other in zip(*kept):
        for a, b in zip(keras.tree.flatten(one), keras.tree.flatten(other)):
            assert (a.dtype, a.device) == (b.dtype, b.device)
            assert torch.equal(a, b)
    assert len(kept[1]) == 8
    assert {*dtypes} >= {torch.float32, torch.uint8, torch.float16, torch.bool, torch.int32}
