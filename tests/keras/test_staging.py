"""Batches on their way to the trainer: groups for TensorFlow, transfers ahead to a GPU for JAX.

``on_a_gpu.py`` runs the other tests with such transfers; here they are forced.
Groups are small, as the batches of tests are few.
"""

from __future__ import annotations

import itertools
from typing import Any

import keras
import numpy as np
import pytest

from adapters import ClosedError, SafeSequence
from adapters.keras import dataset, device, reading
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
    sequence_of,
)
from tests.keras.samples import BATCH_SIZE, FailsAt, Unreadable, numbered

BATCHES = 17
ON_JAX = pytest.mark.skipif(BACKEND != "jax", reason="of JAX alone")


# --- groups of small batches, on TensorFlow ---


def changing(batch: Any) -> Any:
    """Every 40th batch is wider, some are shorter, and all are nested."""
    number = int(batch[0][0, 0]) // BATCH_SIZE
    features = np.repeat(batch[0], 2 if number % 40 == 1 else 1, axis=1)
    rows = 3 if number % 30 == 29 else 4
    return {"a": features[:rows]}, {"label": batch[1][:rows]}


def texts(batch: Any) -> Any:
    return {"a": batch[0]}, {"label": batch[0].astype(int).astype(str)}


def emptied(batch: Any) -> Any:
    """TensorFlow's ``unbatch`` would end the process."""
    return {"a": batch[0], "empty": batch[0][:, :0]}, {"label": batch[1]}


def plain(labels: Any) -> Any:
    return labels.astype("S") if labels.dtype.kind in "OU" else labels


@pytest.mark.skipif(BACKEND != "tensorflow", reason="of TensorFlow alone")
@pytest.mark.parametrize(
    ("transform", "workers", "seconds"),
    [
        (changing, INLINE, 0),
        (changing, TWO_THREADS, 60),
        (texts, TWO_THREADS, 60),
        (emptied, INLINE, 60),
    ],
)
def test_groups(transform, workers, seconds, monkeypatch):
    """However many are ready in time."""
    monkeypatch.setattr(dataset, "_GROUP_SECONDS", seconds)
    count, recorder = 120, built_recorder()
    expected = [transform(batch) for batch in SafeSequence(numbered(4 * count), 4, workers=0)]
    options = {**workers, "batch_transform": transform}
    with SafeSequence(numbered(4 * count), 4, **options) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0)
    for found, batch in zip(recorder.lists.trained, expected, strict=True):
        np.testing.assert_array_equal(found[0]["a"], batch[0]["a"])
        np.testing.assert_array_equal(plain(found[1]["label"]), plain(batch[1]["label"]))


@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS, AUTO], ids=["inline", "threads", "auto"])
@pytest.mark.parametrize("queue", [1, 3, 10])
def test_queue_bounds_what_is_ahead(workers, queue):
    computed, ahead = itertools.count(1), []
    latest = [0]

    def transform(batch: Any) -> Any:
        latest[0] = next(computed)
        return batch

    def look(model: keras.Model, trained: int) -> None:
        ahead.append(latest[0] - trained)

    options = {**workers, "max_queue_size": queue, "batch_transform": transform}
    with SafeSequence(numbered(400), 4, **options) as sequence:
        recorder = built_recorder()
        recorder.fit(sequence, callbacks=[AfterBatch(look)], shuffle=False, verbose=0)
    assert len(recorder.trained) == 100
    # Each of two workers has one in progress, beside those that are ready if there are fewer than
    # twice as many; the trainer has one.
    window = queue if workers is INLINE or queue >= 4 else queue + 2
    assert max(ahead) <= max(window, 2) + 1


@pytest.mark.parametrize("workers", [INLINE, AUTO], ids=["inline", "auto"])
def test_state_of_the_batch_in_training(workers):
    states: list[Any] = []
    with SafeSequence(numbered(480), 4, **workers) as sequence:
        look = AfterBatch(lambda model, trained: states.append(sequence.state_dict()))
        built_recorder().fit(sequence, callbacks=[look], shuffle=False, verbose=0)
    assert [state["batch"] for state in states] == [*range(1, 120), 0]


# --- transfers ahead, on JAX ---


@pytest.fixture
def sent(monkeypatch) -> list[int]:
    """Batches of each transfer; staging is on, where the backend is JAX."""
    monkeypatch.setenv("ADAPTERS_STAGING", "1")
    monkeypatch.setattr(device, "MOST_BATCHES", 3)
    monkeypatch.setattr(device, "LEAST_BATCHES", 0)
    # A machine that is busy must not make the batches slow.
    monkeypatch.setattr(reading, "QUICK_SECONDS", 60)
    sizes: list[int] = []
    transferred = device.transferred

    def noted(batches: list[Any]) -> Any:
        sizes.append(len(batches))
        return transferred(batches)

    monkeypatch.setattr(device, "transferred", noted)
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


@pytest.mark.one_keras
@ON_JAX
@pytest.mark.parametrize("workers", KINDS_OF_WORKERS)
def test_values_dtypes_and_structures(workers, sent, monkeypatch):
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


@pytest.mark.one_keras
@ON_JAX
def test_shapes_that_differ(sent):
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


@pytest.mark.one_keras
@ON_JAX
@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS, AUTO])
def test_state_does_not_count_what_is_ahead(workers, sent):
    states: list[int] = []
    with sequence_of(BATCHES, **workers) as sequence:
        look = AfterBatch(lambda model, count: states.append(sequence.state_dict()["batch"]))
        built_recorder().fit(sequence, callbacks=[look], verbose=0)
        assert sequence.epoch == 1
    assert states[:-1] == list(range(1, BATCHES))
    if workers is INLINE:
        assert 3 in sent


@pytest.mark.one_keras
@ON_JAX
@pytest.mark.parametrize("call", ["fit", "evaluate"])
def test_error_in_its_place(call, sent):
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


@pytest.mark.one_keras
@ON_JAX
def test_closed_within_fit(sent):
    recorder, sequence = built_recorder(), sequence_of(BATCHES, **INLINE)
    close = AfterBatch(lambda model, count: sequence.close() if count == 10 else None)
    with pytest.raises(ClosedError):
        recorder.fit(sequence, callbacks=[close], verbose=0)
    assert len(recorder.trained) == 10


@pytest.mark.one_keras
@ON_JAX
def test_queue_bounds_a_transfer(sent):
    with sequence_of(BATCHES, max_queue_size=2, **INLINE) as sequence:
        built_recorder().fit(sequence, verbose=0)
    assert set(sent) == {1, 2}


@pytest.mark.one_keras
@ON_JAX
@pytest.mark.parametrize("wanted", ["", "0", "1"])
def test_off_on_a_cpu_and_under_a_distribution(wanted, monkeypatch):
    monkeypatch.setattr("jax.default_backend", lambda: "cpu")
    monkeypatch.setenv("ADAPTERS_STAGING", wanted)
    assert (device.most_in_a_transfer(1000, 10) is not None) == (wanted == "1")
    with keras.distribution.DataParallel().scope():
        assert device.most_in_a_transfer(1000, 10) is None


@pytest.mark.skipif(BACKEND != "jax", reason="of JAX alone")
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_no_batch_ahead_under_a_distribution(platform, monkeypatch):
    import jax

    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    states: list[int] = []
    with sequence_of(BATCHES, **INLINE) as sequence, keras.distribution.DataParallel().scope():
        look = AfterBatch(lambda model, count: states.append(sequence.state_dict()["batch"]))
        built_recorder().fit(sequence, callbacks=[look], verbose=0)
    assert states[:-1] == list(range(1, BATCHES))


# --- pinned memory, on PyTorch ---


@pytest.mark.one_keras
@pytest.mark.skipif(BACKEND != "torch", reason="of PyTorch alone")
def test_pinned_tensors(monkeypatch):
    import torch

    dtypes: list[Any] = []
    empty = torch.empty

    def unpinned(*shape: Any, pin_memory: bool = False, **options: Any) -> Any:
        if pin_memory:
            dtypes.append(options["dtype"])
        return empty(*shape, **options)

    monkeypatch.setattr(torch, "empty", unpinned)
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
