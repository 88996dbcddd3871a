"""``pack`` shuffles what comes sorted by class, says so, and writes the same bytes each time."""

from __future__ import annotations

import numpy as np
import pytest

from adapters import open_images, open_records, pack, split
from adapters.packing import Manifest
from tests.packing.materials import files_in, folder, jpeg

SORTED = np.repeat(np.arange(4), 10)
MIXED = np.arange(40) % 4


def labels_of(source, path, **options):
    """The labels in the order of the file, and the seed that the manifest names."""
    manifest = pack(source, path, format="recordio", encoding="raw", **options)
    assert Manifest.load(path.with_suffix(".json")).seed == manifest.seed
    with open_records(path, decode="image") as records:
        return [int(label) for _, label in records], manifest.seed


def arrays(labels):
    return np.arange(len(labels) * 4, dtype=np.uint8).reshape(-1, 2, 2), labels


def runs(labels):
    return 1 + int((np.diff(labels) != 0).sum())


@pytest.mark.parametrize("kind", ["arrays", "list", "records"])
def test_samples_sorted_by_class_are_shuffled(tmp_path, kind):
    x, y = arrays(SORTED)
    source = (x, y) if kind == "arrays" else list(zip(x, y.tolist()))
    if kind == "records":
        labels_of(source, tmp_path / "sorted.rec", seed=None)
        source = open_records(tmp_path / "sorted.rec", decode="image")
    labels, seed = labels_of(source, tmp_path / "x.rec")
    assert (sorted(labels), seed) == (SORTED.tolist(), 0)
    assert runs(labels) > 20


@pytest.mark.parametrize("kind", ["folder", "images", "part"])
def test_folders_of_classes_are_shuffled(tmp_path, kind):
    source = folder(tmp_path / "in", 40, ["ant", "bee", "cat", "dog"])
    if kind != "folder":
        source = open_images(source)
    if kind == "part":
        source, _ = split(source, [0.5, 0.5])
    labels, seed = labels_of(source, tmp_path / "x.rec")
    assert seed == 0
    assert runs(labels) > len(labels) / 2


def test_any_other_order_is_kept(tmp_path):
    assert labels_of(arrays(MIXED), tmp_path / "x.rec") == (MIXED.tolist(), None)
    numbers = np.arange(40)
    assert labels_of(arrays(numbers), tmp_path / "y.rec") == (numbers.tolist(), None)


def test_a_sorted_order_is_kept_where_asked(tmp_path):
    assert labels_of(arrays(SORTED), tmp_path / "x.rec", seed=None) == (SORTED.tolist(), None)


def test_a_seed_shuffles_any_order_and_another_one_otherwise(tmp_path):
    first, seed = labels_of(arrays(np.arange(40)), tmp_path / "x.rec", seed=5)
    other, _ = labels_of(arrays(np.arange(40)), tmp_path / "y.rec", seed=6)
    assert seed == 5
    assert sorted(first) == sorted(other) == list(range(40))
    assert first != other


def test_the_bytes_are_the_same_each_time_whatever_the_workers(tmp_path):
    for name, workers in (("a", 0), ("b", 3)):
        pack(arrays(SORTED), tmp_path / name / "x", format="tfrecord", workers=workers)
    assert files_in(tmp_path / "a") == files_in(tmp_path / "b")


def test_ids_are_those_of_the_input(tmp_path):
    samples = [(jpeg(number), number // 10) for number in range(30)]
    manifest = pack(samples, tmp_path / "x.tfrecord", format="tfrecord", seed=1)
    with open_records(tmp_path / "x.tfrecord", decode="example") as records:
        ids = [int(sample["image/id"][0]) for sample in records]
        labels = [int(sample["image/class/label"][0]) for sample in records]
    assert ids != sorted(ids) == list(range(30))
    assert labels == [number // 10 for number in ids]
    assert manifest.packed == 30


def test_another_seed_begins_anew(tmp_path):
    """What is left of a run that was given up is not taken for a part of this one."""

    def give_up(done, total):
        if done == 20:
            raise KeyboardInterrupt

    x = arrays(SORTED)
    options = {"format": "recordio", "encoding": "raw", "shard_bytes": 300}
    with pytest.raises(KeyboardInterrupt):
        pack(x, tmp_path / "a/x", seed=1, progress=give_up, **options)
    pack(x, tmp_path / "a/x", seed=2, **options)
    pack(x, tmp_path / "b/x", seed=2, **options)
    assert files_in(tmp_path / "a") == files_in(tmp_path / "b")


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        (-1, ValueError, 'seed must be >= 0, "auto" or None, got -1'),
        ("no", TypeError, "seed must be an integer >= 0, \"auto\" or None, got 'no'"),
    ],
)
def test_wrong_seeds_are_refused(tmp_path, seed, error, message):
    with pytest.raises(error, match=message):
        pack(arrays(SORTED), tmp_path / "x", format="recordio", seed=seed)
