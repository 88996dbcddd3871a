"""``collate``: the user's function from a list of samples to a batch, whoever runs it."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence, pad, ragged
from adapters.transforms import RandomErasing
from tests.batches import exact

RNG = np.random.default_rng(0)
TOKENS = [RNG.integers(1, 50, RNG.integers(1, 30)) for _ in range(70)]
SAMPLES = [(tokens, np.float32(len(tokens) > 15)) for tokens in TOKENS]


def epoch_of(**arguments: Any) -> list[Any]:
    with SafeSequence(SAMPLES, 8, shuffle=True, seed=3, **arguments) as sequence:
        return [exact(batch) for batch in sequence]


def test_collate_gets_the_transformed_samples_and_batch_transform_what_it_returns():
    sequence = SafeSequence(
        [1, 2, 3],
        2,
        transform=lambda sample: sample * 10,
        collate=lambda samples: {"sum": np.array(samples).sum(keepdims=True), "list": samples},
        batch_transform=lambda batch: {**batch, "sum": batch["sum"] + 1},
        workers=0,
    )
    assert sequence[0]["sum"].tolist() == [31]
    assert sequence[1]["sum"].tolist() == [31]


@pytest.mark.parametrize("kind", [{"workers": 2}, {"workers": 2, "use_multiprocessing": True}])
def test_the_same_batches_for_every_kind_of_workers(kind):
    assert epoch_of(collate=pad(), **kind) == epoch_of(collate=pad(), workers=0)


def test_samples_of_arrays_and_of_decoded_rows_go_through_it_one_by_one():
    sequence = SafeSequence((np.arange(6), np.arange(6)), 3, collate=list, workers=0)
    assert [tuple(map(int, sample)) for sample in sequence[1]] == [(3, 3), (4, 4), (5, 5)]


def test_what_it_writes_into_its_samples_harms_nobody():
    def spoil(samples: list[Any]) -> Any:
        for sample in samples:
            sample *= 0
        return np.stack(samples)

    data = [np.ones(3) for _ in range(4)]
    SafeSequence(data, 2, collate=spoil, workers=0)[0]
    assert all(sample.sum() == 3 for sample in data)


def test_what_it_keeps_is_copied():
    kept = np.zeros(2)

    def refill(samples: list[Any]) -> Any:
        kept[:] = samples
        return kept

    sequence = SafeSequence([1, 2, 3, 4], 2, collate=refill, workers=0)
    assert [batch.tolist() for batch in list(sequence)] == [[1, 2], [3, 4]]


def test_what_it_keeps_is_not_written_to_by_a_transform_after_it():
    kept = np.full((2, 8, 8), 9, np.uint8)
    sequence = SafeSequence(
        [1, 2, 3, 4],
        2,
        collate=lambda samples: kept,
        batch_transform=RandomErasing(1.0),
        workers=0,
    )
    assert [(batch == 0).any() for batch in list(sequence)] == [True, True]
    assert (kept == 9).all()


def test_what_it_draws_from_numpy_depends_on_the_place_alone():
    def noisy(samples: list[Any]) -> Any:
        return np.array(samples) + np.random.rand(len(samples))

    epochs = []
    for workers in (0, 2):
        with SafeSequence([1.0, 2.0, 3.0, 4.0], 2, collate=noisy, workers=workers) as sequence:
            epochs.append([exact(batch) for batch in sequence])
    assert epochs[0] == epochs[1]


def test_errors_say_where():
    with pytest.raises(ZeroDivisionError) as raised:
        SafeSequence([1], 1, collate=lambda samples: 1 / 0, workers=0)[0]
    assert "in collate, batch 0 of epoch 0" in raised.value.__notes__
    with pytest.raises(ValueError, match="collate must return a batch, got None"):
        SafeSequence([1], 1, collate=lambda samples: None, workers=0)[0]
    with pytest.raises(TypeError, match="collate must be callable with a list of samples"):
        SafeSequence([1], 1, collate="pad")


class Whole(keras.utils.PyDataset):
    """Whole batches."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return np.zeros(3)


def test_whole_batches_have_no_samples_to_collate():
    with pytest.raises(ValueError, match="collate makes batches of single samples"):
        SafeSequence(Whole(), collate=pad())


def test_on_error_counts_for_its_samples_too():
    def broken(sample: int) -> int:
        return 1 // (sample != 2) * sample

    sequence = SafeSequence(
        [1, 2, 3], 3, transform=broken, collate=np.stack, on_error="skip", workers=0
    )
    assert sequence[0].tolist() == [1, 3, 3]


def test_explain_names_it(capsys):
    SafeSequence([[1]], 1, collate=pad(0, 8), workers=0).explain()
    assert "collate pad(0, 8, None, axis=(0,), lengths=False): makes a batch" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize("multiple", [1, 16, 64])
def test_fit_takes_batches_of_lengths_that_vary(multiple):
    """Also where the first two batches happen to be equally long, as TensorFlow sees these."""
    model = keras.Sequential([keras.layers.Embedding(50, 4), keras.layers.GlobalAveragePooling1D()])
    model.add(keras.layers.Dense(1, activation="sigmoid"))
    model.compile("sgd", "binary_crossentropy")
    samples = sorted(SAMPLES, key=lambda sample: len(sample[0]))
    samples = samples[:16] * 2 + samples
    sequence = SafeSequence(samples, 8, collate=pad(0, multiple), workers=2)
    history = model.fit(sequence, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="its layer is written for JAX")
@pytest.mark.one_keras  # Keras 3.6 takes no tuple for a list of inputs.
def test_fit_takes_ragged_batches():
    """A bag of words: a sum over the tokens of each sample, told by the row splits."""
    import jax

    def summed(batch: Any) -> Any:
        values, splits = batch
        place = jax.numpy.searchsorted(splits[1:], jax.numpy.arange(len(values)), side="right")
        return jax.ops.segment_sum(values, place, num_segments=len(splits) - 1)

    values, splits = keras.Input((), dtype="int32"), keras.Input((), dtype="int32")
    embedded = keras.layers.Embedding(50, 1)(values)
    rows = keras.layers.Lambda(summed, output_shape=(1,))([embedded, splits])
    model = keras.Model([values, splits], keras.layers.Dense(1)(rows))
    model.compile("sgd", "mse")
    sequence = SafeSequence(SAMPLES[:64], 8, collate=ragged(0, 64), workers=0)
    (batch, row_splits), labels = sequence[0]
    assert (len(batch) % 64, len(row_splits), len(labels)) == (0, 9, 8)
    assert np.isfinite(model.fit(sequence, verbose=0).history["loss"]).all()
