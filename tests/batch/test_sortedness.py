"""Who reads in blocks what is sorted by class is told so once, with the figures."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from adapters import Blocks, Feature, RecordWriter, open_records, pack
from adapters.batch.arranging import order_of
from adapters.records import example
from adapters.sources import as_source

SORTED = np.repeat(np.arange(100), 50)
BLOCKS = Blocks(block_bytes=50 * 16, window=4)


def told(caplog, source, shuffle=BLOCKS, batch_size=64):
    with caplog.at_level(logging.WARNING, "adapters"):
        order_of(len(source), batch_size, shuffle, source=source)
        order_of(len(source), batch_size, shuffle, source=source)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("kind", ["arrays", "list", "part"])
def test_sorted_labels_are_told_once_with_the_figures(caplog, kind):
    x = np.zeros(len(SORTED))
    source = as_source(list(zip(x, SORTED.tolist())) if kind == "list" else (x, SORTED))
    if kind == "part":
        source = source.select(range(4000))
    (message,) = told(caplog, source)
    classes, best = float(message.split()[1]), float(message.split("shuffle has ")[1].split(":")[0])
    assert "classes in a batch of 64" in message
    assert classes <= 10 < 40 < best <= 64


@pytest.mark.parametrize("labels", [np.arange(5000) % 7, np.arange(5000), np.zeros(5000)])
def test_other_labels_are_not(caplog, labels):
    assert told(caplog, as_source((np.zeros(5000), labels))) == []


def test_shuffled_labels_are_not(caplog):
    labels = np.random.default_rng(0).permutation(SORTED)
    assert told(caplog, as_source((np.zeros(5000), labels))) == []


def test_a_full_shuffle_is_nobodys_business(caplog):
    assert told(caplog, as_source((np.zeros(5000), SORTED)), shuffle=True) == []


def test_labels_that_nobody_knows_are_not_asked_for(caplog):
    assert told(caplog, as_source(np.zeros((5000, 2)))) == []


@pytest.mark.parametrize(("seed", "count"), [(None, 1), ("auto", 0)])
def test_what_pack_has_shuffled_is_fine(caplog, tmp_path, seed, count):
    images = np.zeros((2000, 2, 2), np.uint8)
    path = tmp_path / "x.rec"
    pack((images, SORTED[:2000]), path, format="recordio", encoding="raw", seed=seed)
    with open_records(path, decode="image") as records:
        bytes_of_one = records.sample_bytes
        blocks = Blocks(int(50 * bytes_of_one), 4)
        assert len(told(caplog, records, blocks)) == count


@pytest.mark.parametrize(
    ("names", "outputs", "count"),
    [
        (("image/encoded", "image/class/label"), ("image/encoded", "image/class/label"), 1),
        (("image/encoded", "image/class/label"), None, 1),
        (("x", "label"), None, 1),
        (("x", "y"), ("x", "y"), 1),
        (("x", "y"), None, 0),  # Which one is the label?
    ],
)
def test_typed_features_are_told_of_as_well(caplog, tmp_path, names, outputs, count):
    images = np.zeros((2000, 2, 2), np.uint8)
    path = tmp_path / "x.tfrecord"
    pack((images, SORTED[:2000]), path, format="tfrecord", encoding="raw", seed=None)
    stored = dict(zip(names, ("image/encoded", "image/class/label")))
    decode = dict(zip(names, (Feature(bytes), Feature("int64"))))
    with open_records(path, decode=decode, fields=stored, outputs=outputs) as records:
        blocks = Blocks(int(50 * records.sample_bytes), 4)
        assert len(told(caplog, records, blocks)) == count


def test_features_that_are_no_classes_are_not(caplog, tmp_path):
    with RecordWriter(tmp_path / "x.tfrecord", format="tfrecord") as writer:
        for number in SORTED[:2000]:
            writer.write(example.encode({"label": [int(number)] * 2}))
    decode = {"label": Feature("int64", (2,))}
    with open_records(tmp_path / "x.tfrecord", decode=decode) as records:
        assert told(caplog, records, Blocks(int(50 * records.sample_bytes), 4)) == []


def test_what_is_damaged_is_not_told_here(caplog, tmp_path):
    with RecordWriter(tmp_path / "x.rec", format="recordio") as writer:
        for _ in range(300):
            writer.write(b"no image")
    with open_records(tmp_path / "x.rec", decode="image") as records:
        assert told(caplog, records, Blocks(1000, 2)) == []
