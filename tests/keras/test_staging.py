"""Batches on their way to the trainer: tensors of TensorFlow, transfers ahead to a GPU for JAX.

``on_a_gpu.py`` runs the other tests with such transfers; here they are forced.
Groups are small, as the batches of tests are few.
"""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras import device, internals, reading
from adapters.structure import map_leaves
from tests.keras import recording
from tests.keras.recording import AUTO, INLINE, TWO_THREADS, Recorder, built_recorder, sequence_of
from tests.keras.samples import BATCH_SIZE, FailsAt, Unreadable, numbered

pytestmark = pytest.mark.usefixtures("sent_by_value")
BATCHES = 17
ON_JAX = pytest.mark.skipif(recording.BACKEND != "jax", reason="of JAX alone")


def of_jax(test: Any) -> Any:
    """Of JAX alone, with any version of Keras."""
    return pytest.mark.one_keras(ON_JAX(test))


# --- batches that differ, on TensorFlow ---


def changing(batch: Any) -> Any:
    number = int(batch[0][0, 0]) // BATCH_SIZE
    features = np.repeat(batch[0], 2 if number % 30 == 1 else 1, axis=1)
    rows = 3 if number % 20 == 19 else 4
    return {"a": features[:rows]}, {"label": batch[1][:rows]}


def texts(batch: Any) -> Any:
    return {"a": batch[0]}, {"label": batch[0].astype(int).astype(str)}


def emptied(batch: Any) -> Any:
    return {"a": batch[0], "empty": batch[0][:, :0]}, {"label": batch[1]}


def plain(labels: Any) -> Any:
    return labels.astype("S") if labels.dtype.kind in "OU" else labels


@pytest.mark.skipif(recording.BACKEND != "tensorflow", reason="of TensorFlow alone")
@pytest.mark.parametrize("steps", [1, 3], ids=["from Python", "through tf.data"])
@pytest.mark.parametrize(
    ("transform", "workers"), [(changing, INLINE), (texts, TWO_THREADS), (emptied, INLINE)]
)
def test_batches_that_differ(transform, workers, steps):
    count, recorder = 60, Recorder(steps_per_execution=steps)
    internals.build(recorder, numbered(2))
    expected = [transform(batch) for batch in SafeSequence(numbered(4 * count), 4, workers=0)]
    options = {**workers, "batch_transform": transform}
    with SafeSequence(numbered(4 * count), 4, **options) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0)
    for found, batch in zip(recorder.lists.trained, expected, strict=True):
        np.testing.assert_array_equal(found[0]["a"], batch[0]["a"])
        np.testing.assert_array_equal(plain(found[1]["label"]), plain(batch[1]["label"]))


@pytest.mark.parametrize(
    ("workers", "queue"), [(INLINE, 10), (INLINE, 1), (TWO_THREADS, 1), (TWO_THREADS, 3), (AUTO, 3)]
)
def test_queue_bounds_what_is_ahead(workers, queue):
    computed: list[Any] = []
    ahead: list[int] = []

    def transform(batch: Any) -> Any:
        computed.append(batch)
        return batch

    look = recording.AfterBatch(lambda model, trained: ahead.append(len(computed) - trained))
    options = {**workers, "max_queue_size": queue, "batch_transform": transform}
    with SafeSequence(numbered(160), 4, **options) as sequence:
        built_recorder().fit(sequence, callbacks=[look], shuffle=False, verbose=0)
    assert len(ahead) == 40
    # Each of two workers has one in progress, beside those that are ready if there are fewer than
    # twice as many; the trainer has one.
    window = queue if workers is INLINE or queue >= 4 else queue + 2
    assert max(ahead) <= max(window, 2) + 1


# --- transfers ahead, on JAX ---


def states_of_fit(sequence: SafeSequence) -> list[int]:
    states: list[int] = []
    look = recording.AfterBatch(lambda model, count: states.append(sequence.state_dict()["batch"]))
    built_recorder().fit(sequence, callbacks=[look], verbose=0)
    return states


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


@of_jax
@pytest.mark.parametrize("workers", recording.KINDS_OF_WORKERS)
def test_values_dtypes_and_structures(workers, sent, monkeypatch):
    kept = []
    options = {"transform": structured, "shuffle": True, "seed": 3, **workers}
    for wanted in ("0", "1"):
        monkeypatch.setenv("ADAPTERS_STAGING", wanted)
        recorder = Recorder()
        with SafeSequence(numbered(BATCHES * 4 - 3), 4, **options) as sequence:
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


@of_jax
def test_shapes_that_differ(sent):
    def cut(batch: Any) -> Any:
        features, labels = batch
        width = 2 if 5 <= features[0, 0] // BATCH_SIZE < 9 else 3
        return np.repeat(features, width, 1), labels

    recorder, sequence = Recorder(), sequence_of(BATCHES, batch_transform=cut)
    recorder.fit(sequence, shuffle=False, verbose=0)
    firsts = [batch[0][0, 0] // BATCH_SIZE for batch in recorder.lists.trained]
    widths = [batch[0].shape[1] for batch in recorder.lists.trained]
    assert firsts == list(range(BATCHES))
    assert widths == [2 if 5 <= number < 9 else 3 for number in range(BATCHES)]
    assert 3 in sent


@of_jax
@pytest.mark.parametrize("workers", [INLINE, TWO_THREADS, AUTO])
def test_state_does_not_count_what_is_ahead(workers, sent):
    with sequence_of(BATCHES, **workers) as sequence:
        assert states_of_fit(sequence) == [*range(1, BATCHES), 0]
    if workers is INLINE:
        assert 3 in sent


@of_jax
@pytest.mark.parametrize("call", ["fit", "evaluate"])
def test_error_in_its_place(call, sent):
    recorder, sequence = built_recorder(), sequence_of(BATCHES, transform=FailsAt(44), **INLINE)
    options: dict[str, Any] = {"shuffle": False} if call == "fit" else {}
    with pytest.raises(Unreadable):
        getattr(recorder, call)(sequence, verbose=0, **options)
    assert len(recorder.trained if call == "fit" else recorder.tested) == 11
    assert sequence.state_dict()["batch"] == 11
    assert 3 in sent


@of_jax
def test_queue_bounds_a_transfer(sent):
    with sequence_of(BATCHES, max_queue_size=2, **INLINE) as sequence:
        built_recorder().fit(sequence, verbose=0)
    assert set(sent) == {1, 2}


@ON_JAX
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_no_batch_ahead_under_a_distribution(platform, sent, monkeypatch):
    import jax

    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    with sequence_of(BATCHES, **INLINE) as sequence, keras.distribution.DataParallel().scope():
        assert states_of_fit(sequence) == [*range(1, BATCHES), 0]
    assert sent == []


@of_jax
@pytest.mark.parametrize("wanted", ["", "0"])
def test_no_batch_ahead_on_a_cpu(wanted, sent, monkeypatch):
    monkeypatch.setattr("jax.default_backend", lambda: "cpu")
    monkeypatch.setenv("ADAPTERS_STAGING", wanted)
    with sequence_of(BATCHES, **INLINE) as sequence:
        states_of_fit(sequence)
    assert sent == []


# --- pinned memory, on PyTorch ---


@pytest.mark.one_keras
@pytest.mark.skipif(recording.BACKEND != "torch", reason="of PyTorch alone")
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
    pinned = functools.partial(device._pinned_copy, "cpu")
    for copied in (device.for_torch, lambda: lambda batch: map_leaves(pinned, batch)):
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
