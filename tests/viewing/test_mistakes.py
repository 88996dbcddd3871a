"""Nearly always mistakes, and what looks like them and is none: a test for each."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from adapters.sources import as_source
from adapters.viewing.mistakes import LOOKS, Inspection

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (64, 8, 8, 3), np.uint8)


def said(caplog: Any, batches: list[Any], **arguments: Any) -> list[str]:
    """What is said of these batches, of a source of arrays unless another one is given."""
    if batches and len(batches[0]) == 2 and isinstance(batches[0][1], np.ndarray):
        whole = tuple(map(np.concatenate, zip(*batches)))
        arguments.setdefault("source", as_source(whole) if len(whole[0]) else None)
    inspection = Inspection(**{"shuffled": False, "scales": False, **arguments})
    caplog.clear()
    with caplog.at_level(logging.WARNING, "adapters.mistakes"):
        for batch in batches:
            inspection.look(batch)
    return [record.getMessage() for record in caplog.records]


def batches_of(labels: Any, size: int = 16, images: Any = IMAGES) -> list[Any]:
    return [(images[at : at + size], labels[at : at + size]) for at in range(0, LOOKS * size, size)]


def one_hot(numbers: Any) -> Any:
    return np.eye(10, dtype=np.float32)[numbers]


BY_CLASS = np.arange(64) // 16
MIXED = RNG.integers(0, 10, 64)


SORTED = [BY_CLASS, one_hot(BY_CLASS), BY_CLASS[:, None].astype("u1"), np.arange(64) // 10]


@pytest.mark.parametrize("labels", SORTED)
def test_sorted_labels(labels, caplog):
    (line,) = said(caplog, batches_of(labels))
    assert "sorted by class; give SafeSequence shuffle=True" in line


def test_black_images(caplog):
    for dtype in (np.uint8, np.float32):
        (line,) = said(caplog, batches_of(MIXED, images=np.zeros((64, 8, 8, 3), dtype)))
        assert "all black" in line
    assert len(said(caplog, batches_of(MIXED, images=np.zeros((64, 3, 8, 8), "f4")))) == 1


LONG = np.zeros((2000, 1), np.float32)


@pytest.mark.parametrize("classes", [2, 10, 500])
@pytest.mark.parametrize("form", [lambda y: y, lambda y: np.eye(500, dtype="f4")[y]])
def test_sorted_labels_whose_first_batches_have_one_class(classes, form, caplog):
    labels = np.repeat(np.arange(classes), 2000 // classes)
    if classes == 500:  # A large first class, and many small ones.
        labels = np.concatenate([np.zeros(200, int), np.sort(RNG.integers(1, 500, 1800))])
    batches = [(LONG[at : at + 32], form(labels)[at : at + 32]) for at in range(0, 128, 32)]
    (line,) = said(caplog, batches, source=as_source((LONG, form(labels))))
    assert "sorted by class; give SafeSequence shuffle=True" in line


@pytest.mark.parametrize(
    "labels",
    [
        np.zeros(2000, int),
        (np.arange(2000) % 200 == 199).astype(int),  # Rare.
        np.concatenate([np.zeros(200, int), RNG.integers(0, 5000, 1800)]),  # Counts of something.
        RNG.integers(0, 10, 2000),  # That a transform made 0.
    ],
)
def test_first_batches_of_one_class_may_be_innocent(labels, caplog):
    batches = [(LONG[at : at + 32], np.zeros(32, int)) for at in range(0, 128, 32)]
    assert said(caplog, batches, source=as_source((LONG, labels))) == []


def test_a_source_whose_labels_fail_is_innocent(caplog):
    source = as_source([(0.0, 0)] * 64 + [()] * 64)  # type: ignore[list-item]
    assert said(caplog, batches_of(np.zeros(64, int)), source=source) == []


@pytest.mark.parametrize(("dtype", "share"), [("f4", 1), ("f8", 1), ("f2", 1), ("f4", 0.9)])
def test_floats_of_0_to_255(dtype, share, caplog):
    """Whole ones, and photographs that are not."""
    (line,) = said(caplog, batches_of(MIXED, images=IMAGES.astype(dtype) * share))
    assert "divide by 255" in line


def test_it_is_said_once_after_the_last_look_and_no_more(caplog):
    inspection = Inspection(False, False)
    black = batches_of(MIXED, images=np.zeros_like(IMAGES))
    for batch in black[:-1]:
        inspection.look(batch)
    assert caplog.records == []
    for batch in black * 3:
        inspection.look(batch)
    assert len(caplog.records) == 1


WIDE = np.pad(IMAGES, ((0, 0), (0, 0), (200, 0), (0, 0)))
INNOCENT = {
    "mixed labels": batches_of(MIXED),
    "one class": batches_of(np.zeros(64, int)),
    "regression": batches_of(np.arange(64) / 7),
    "regression by whole numbers": batches_of(np.arange(64)),
    "constant numbers": batches_of(BY_CLASS.astype(np.float32)),
    "segmentation": batches_of(np.repeat(BY_CLASS, 64).reshape(64, 8, 8)),
    "several labels of a sample": batches_of(np.ones((64, 5), int)),
    "rare classes": batches_of((np.arange(64) == 31).astype(int)),
    "rare classes at the ends": batches_of((np.arange(64) > 62).astype(int)),
    "no labels": [IMAGES[:16]] * LOOKS,
    "texts": [(np.array(["a"] * 16, object), MIXED[:16])] * LOOKS,
    "mostly black": batches_of(MIXED, images=WIDE * (np.arange(64) % 16 == 0)[:, None, None, None]),
    "floats of 0 to 1": batches_of(MIXED, images=IMAGES.astype("f4") / 255),
    "normalized floats": batches_of(MIXED, images=IMAGES.astype("f4") - 128),
    "masks": batches_of(MIXED, images=(IMAGES > 99).astype("f4")),
    "boards": batches_of(MIXED, images=IMAGES.astype("f4") // 30),
    "spectrograms": batches_of(MIXED, images=IMAGES[..., :1].astype("f4") * 0.993),
    "tables": batches_of(MIXED, images=IMAGES.reshape(64, -1).astype("f4")),
    "nothing": [()] * LOOKS,
    "objects": [({"a": 1}, None)] * LOOKS,
    "empty": [(IMAGES[:0], MIXED[:0])] * LOOKS,
}


@pytest.mark.parametrize("name", INNOCENT)
def test_an_innocent_look_alike(name, caplog):
    assert said(caplog, INNOCENT[name]) == []


def test_a_model_that_scales_and_an_order_that_is_random_are_innocent(caplog):
    assert said(caplog, batches_of(MIXED, images=IMAGES.astype("f4")), scales=True) == []
    assert said(caplog, batches_of(BY_CLASS), shuffled=True) == []


def test_the_logger_switches_it_off(monkeypatch):
    monkeypatch.setattr(logging.getLogger("adapters.mistakes"), "disabled", True)
    assert Inspection(False, False).done
