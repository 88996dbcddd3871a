"""``peek``, and what ``fit`` says of its first batches."""

from __future__ import annotations

import logging
from typing import Any

import keras
import numpy as np
import pytest

from adapters import SafeSequence
from adapters.keras.adapter import scales
from tests.batches import exact

pytestmark = pytest.mark.one_keras
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (128, 8, 8, 3), np.uint8)
FLOATS = IMAGES.astype(np.float32)
LABELS = RNG.integers(0, 4, 128)
SORTED = np.sort(LABELS)


def test_peek():
    sequence = SafeSequence((IMAGES, LABELS), 16, shuffle=True, workers=0)
    sequence.set_epoch(2)
    state = sequence.state_dict()
    peek = sequence.peek(2)
    assert sequence.state_dict() == state
    assert len(peek.batches) == 2
    assert exact(peek.batches[1]) == exact(tuple(leaf[:8] for leaf in sequence[1]))
    assert peek.png().startswith(b"\x89PNG")
    assert len(sequence.peek(99).batches) == 8
    with pytest.raises(ValueError, match="batches must be >= 1, got 0"):
        sequence.peek(0)


def test_peek_within_an_epoch():
    sequence = SafeSequence(np.arange(100), 10, shuffle=True, shard=(0, 2), workers=0)
    sequence.load_state_dict({"epoch": 1, "samples": 30})
    peek = sequence.peek(3)
    for index in range(3):
        assert peek.batches[index].tolist() == sequence[index][:8].tolist()


def network(*first: Any) -> Any:
    model = keras.Sequential([*first, keras.layers.Flatten(), keras.layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, run_eagerly=True)
    return model


def said(caplog: Any, model: Any, x: Any, y: Any, **arguments: Any) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "adapters.mistakes"):
        validation = SafeSequence((FLOATS, SORTED), 32, workers=0)
        with SafeSequence((x, y), 16, workers=0, **arguments) as sequence:
            model.fit(sequence, validation_data=validation, epochs=2, verbose=0)
        model.evaluate(SafeSequence((FLOATS, SORTED), 16, workers=0), verbose=0)
        model.predict(SafeSequence(FLOATS, 16, workers=0), verbose=0)
    return [record.getMessage() for record in caplog.records if record.name == "adapters.mistakes"]


def test_mistakes_are_said_once(caplog):
    scaled = keras.layers.Rescaling(1 / 255)
    assert said(caplog, network(scaled), FLOATS, LABELS, shuffle=True) == []
    lines = said(caplog, network(), FLOATS, SORTED)
    assert ["divide by 255" in line for line in lines] == [True, False]
    assert "sorted by class" in lines[1]
    assert said(caplog, network(scaled), FLOATS, SORTED, shuffle=True) == []


def test_mistakes_of_validation(caplog):
    model = network(keras.layers.Rescaling(1 / 255))
    with (
        caplog.at_level(logging.WARNING, "adapters.mistakes"),
        SafeSequence((FLOATS, SORTED), 16, workers=0) as validation,
    ):
        model.fit(FLOATS, LABELS, validation_data=validation, verbose=0)
    assert caplog.text == ""


def test_model_that_scales_its_inputs():
    layers, inputs = keras.layers, keras.Input((8, 8, 3))
    assert not scales(network())
    assert not scales(network(layers.ZeroPadding2D(), layers.Conv2D(2, 3)))
    assert not scales(network(layers.RandomFlip()))
    assert scales(network(layers.Rescaling(1 / 255)))
    assert scales(network(keras.Sequential([layers.Normalization()])))
    assert not scales(keras.Sequential([network(), layers.Rescaling(2)]))
    divided = layers.Dense(1)(layers.Flatten()(inputs / 255.0))
    assert scales(keras.Model(inputs, divided))
    assert not scales(keras.Model(inputs, layers.Conv2D(1, 3)(inputs)))

    class Own(keras.Model):
        """Nobody can tell what it does."""

    assert scales(Own())
