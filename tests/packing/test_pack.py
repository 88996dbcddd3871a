"""The files that ``pack`` writes: names, sizes, bytes, order, keys, manifest."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import __version__, open_images, open_records, pack, split
from adapters.packing import Manifest, convert, verify
from adapters.packing.manifest import Skipped
from adapters.records import index_paths, irheader
from tests.packing.materials import FORMATS, SUFFIXES, accounted, files_in, folder, jpeg
from tests.records.conftest import mx_recordio, tf

__all__ = ["mx_recordio", "tf"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = folder(tmp_path_factory.mktemp("in"), 12, ["ant", "bee", "cat"])
    (root / "bee/none.jpg").write_bytes(b"no image")
    return root


def written(source: Any, out: Path, **options: Any) -> dict[str, bytes]:
    pack(source, out, **{"format": "recordio", "on_error": "skip", **options})
    return files_in(out.parent)


# --- the same bytes ---


@pytest.mark.parametrize(
    ("format", "workers"), [("recordio", 0), ("tfrecord", 7), ("recordio", "auto")]
)
def test_bytes_depend_on_no_workers(tmp_path, source, format, workers):
    options = {"format": format, "resize": 16, "shard_bytes": 2500}
    expected = written(source, tmp_path / "a/out", workers=2, **options)
    assert written(source, tmp_path / "b/out", workers=workers, **options) == expected


class Unsafe:
    """60 images, which no two threads may make at once; one of them can't be made."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem

    def __len__(self) -> int:
        return 60

    def __getitem__(self, number: int) -> tuple[Any, int]:
        if number == 40 and self.problem is not None:
            raise self.problem
        self.number = number
        time.sleep(1e-4)
        return np.full((16, 16), self.number, "uint8"), number


def test_one_thread_at_a_time_reads_a_data_set(tmp_path):
    pack(Unsafe(), tmp_path / "x.rec", format="recordio", encoding="raw", workers=4)
    packed = open_records(tmp_path / "x.rec", decode="image")
    assert all((image == label).all() for image, label in packed)


@pytest.mark.parametrize("kind", [OSError(errno.ESTALE, "stale"), ConnectionResetError("reset")])
def test_failing_storage_is_not_skipped(tmp_path, kind):
    with pytest.raises(type(kind)):
        pack(Unsafe(kind), tmp_path / "x", format="recordio", on_error="skip")


# --- files and their names ---


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shard_bytes", [1, 1000, 2500, 10**6])
def test_size_is_at_most_that_asked_for(tmp_path, source, format, shard_bytes):
    """But that of one record may be more."""
    out = tmp_path / "out"
    manifest = pack(source, out, format=format, on_error="skip", shard_bytes=shard_bytes)
    for each in manifest.files:
        assert (tmp_path / each.name).stat().st_size <= shard_bytes or each.records == 1
    assert accounted(manifest)
    assert (len(manifest.files) == manifest.packed) is (shard_bytes <= 1000)


def test_size_may_be_exactly_that_asked_for(tmp_path):
    data = np.zeros((4, 10, 10), np.uint8), range(4)
    options: dict[str, Any] = {"format": "recordio", "encoding": "raw"}
    total = pack(data, tmp_path / "all", **options).files[0].bytes
    cut = lambda size: pack(data, tmp_path / "cut", shard_bytes=size, **options)  # noqa: E731
    assert [len(cut(size).files) for size in (total // 2, total // 2 - 1)] == [2, 4]


@pytest.mark.parametrize("format", FORMATS)
def test_names_count_the_files(tmp_path, source, format):
    names = set(written(source, tmp_path / "train", format=format, shard_bytes=4000))
    stems = [f"train-{number:05d}-of-00003" for number in range(3)]
    expected = {f"{stem}{ending}" for stem in stems for ending in (SUFFIXES[format], ".idx")}
    assert names == expected | {"train.json"}


@pytest.mark.parametrize(
    ("out", "name"),
    [
        ("train.rec", "train.rec"),
        ("train.tfrecords", "train.tfrecords"),
        ("train", "train-00000-of-00001.rec"),
        ("train.v2", "train.v2-00000-of-00001.rec"),
        ("train.v2.rec", "train.v2.rec"),
        ("new/folders/train.rec", "new/folders/train.rec"),
        ("folder", "folder/data-00000-of-00001.rec"),
        ("folder.rec", "folder.rec/data-00000-of-00001.rec"),
    ],
)
def test_name_with_an_ending_is_of_one_file(tmp_path, source, out, name):
    if "/data-" in name:
        (tmp_path / out).mkdir()
    format = "tfrecord" if "tfrecord" in name else "recordio"
    pack(source, tmp_path / out, format=format, on_error="skip")
    stem = name.rpartition(".")[0]
    manifest = stem.removesuffix("-00000-of-00001") + ".json"
    assert set(files_in(tmp_path)) == {name, f"{stem}.idx", manifest}


# --- beside other files ---


@pytest.mark.parametrize(("out", "earlier"), [("out", {"shard_bytes": 1500}), ("out.rec", {})])
def test_earlier_files_go(tmp_path, source, out, earlier):
    expected = written(source, tmp_path / "a" / out, shard_bytes=4000)
    written(source, tmp_path / "b" / out, **earlier)
    assert written(source, tmp_path / "b" / out, shard_bytes=4000) == expected


def test_others_files_stay(tmp_path, source):
    """Even such as are called alike."""
    mine = {"out-00000-of-00009.rec", "out-00000-of-00009.idx", "out.txt", "out2.json"}
    for name in mine:
        (tmp_path / name).write_text("mine")
    written(source, tmp_path / "out", shard_bytes=1500)
    after = written(source, tmp_path / "out")
    assert {name for name, content in after.items() if content == b"mine"} == mine


def test_others_index_stays(tmp_path, source):
    """The index of x.rec is x.idx, as is that of x.tfrecord; also when earlier files go."""
    pack(source, tmp_path / "x.tfrecord", format="tfrecord", on_error="skip")
    (tmp_path / "x.json").unlink()
    before = files_in(tmp_path)
    for options, more in (({}, {"x.rec", "x.rec.idx"}), ({"shard_bytes": 2500}, set())):
        pack(source, tmp_path / "x.rec", format="recordio", on_error="skip", **options)
        after = files_in(tmp_path)
        named = {name for name in after if name.startswith("x.")}
        assert named == {*before, *more, "x.json"}
        assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("content", ['{"images": []}', "no JSON"])
def test_others_file_of_the_manifests_name_stays(tmp_path, source, content):
    (tmp_path / "out.json").write_text(content)
    for _ in range(2):
        pack(source, tmp_path / "out.rec", format="recordio", on_error="skip")
    assert set(files_in(tmp_path)) == {"out.json", "out.rec", "out.idx", "out.rec.json"}
    assert (tmp_path / "out.json").read_text() == content
    (tmp_path / "out.rec.json").write_text("{}")
    before = files_in(tmp_path)
    with pytest.raises(FileExistsError, match="out must leave the manifest a name"):
        pack(source, tmp_path / "out.rec", format="recordio", on_error="skip")
    assert files_in(tmp_path) == before


# --- progress and arguments ---


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"format": "zip"}, ValueError, 'format must be "recordio" or "tfrecord", got \'zip\''),
        ({"encoding": "png"}, ValueError, "encoding must be"),
        ({"on_error": "ignore"}, ValueError, "on_error must be"),
        ({"shard_bytes": "1MB"}, TypeError, "shard_bytes must be an integer"),
        ({"resize": 0}, ValueError, "resize must be >= 1 or None, got 0"),
        ({"quality": 101}, ValueError, "quality must be <= 100, got 101"),
        ({"quality": 90, "encoding": "raw"}, ValueError, 'quality is about encoding="jpeg"'),
        ({"workers": -1}, ValueError, 'workers must be >= 0 or "auto", got -1'),
        ({"workers": None}, TypeError, "workers must be"),
        ({"seed": -1}, ValueError, 'seed must be >= 0, "auto" or None, got -1'),
        ({"seed": "no"}, TypeError, "seed must be an integer >= 0"),
        ({"root": "in"}, ValueError, "root is for the paths in a list, got root='in' with another"),
        ({"progress": True}, TypeError, "progress must be callable or None, got True"),
    ],
)
def test_arguments_are_checked_first(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        pack([(jpeg(0), 0)], tmp_path / "x/out", **{"format": "recordio", **options})
    assert list(tmp_path.iterdir()) == []


# --- the manifest ---


def test_manifest_says_what_was_packed_and_how(tmp_path):
    root = folder(tmp_path / "in", 5)
    (root / "bee/none.jpg").write_bytes(b"no image")
    how: Any = {"on_error": "skip", "resize": np.int64(16), "shard_bytes": np.int64(2000)}
    manifest = pack(root, tmp_path / "x", format="recordio", **how)
    assert Manifest.load(tmp_path / "x.json") == manifest
    text = (tmp_path / "x.json").read_text()
    content = json.loads(text)
    assert (content["read"], content["packed"]) == (6, 5)
    assert sum(each["records"] for each in content["files"]) == 5
    files = {name: data for name, data in files_in(tmp_path).items() if name.endswith(".rec")}
    assert {each["name"]: (each["bytes"], each["sha256"]) for each in content["files"]} == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()
    }
    (skipped,) = manifest.skipped
    assert skipped.name == str(root / "bee/none.jpg")
    assert "8 bytes that begin with 6e 6f" in skipped.reason
    made = {"encoding": "jpeg", "resize": 16, "quality": None, "shard_bytes": 2000}
    assert manifest.settings == made


def test_manifest_names_no_machine(tmp_path):
    """The same input gives the same bytes, also tomorrow and elsewhere."""
    pack(folder(tmp_path / "in", 2), tmp_path / "x", format="recordio")
    text = (tmp_path / "x.json").read_text()
    for own in (str(tmp_path), os.uname().nodename, __version__):
        assert own not in text


@pytest.mark.parametrize("name", ["größe 漢字", os.fsdecode(b"odd \xff\xfe"), 'quote" \\ \n', "😀"])
def test_manifest_holds_any_name(tmp_path, name):
    manifest = Manifest("recordio", {}, [name], 1, 0, [Skipped(name, name)], [])
    manifest.write(tmp_path / "x.json")
    assert Manifest.load(tmp_path / "x.json") == manifest
    text = (tmp_path / "x.json").read_text("utf-8")  # As people read it.
    assert json.loads(text)["classes"] == [name]
    assert "größe" in text or "größe" not in name


OF_FILES_ELSEWHERE = b"""{"format": "recordio", "settings": {}, "classes": null, "read": 1,
"packed": 1, "skipped": [], "files": [{"name": "/x", "records": 1, "bytes": 1, "sha256": ""}]}"""


@pytest.mark.parametrize(
    ("content", "is_json"),
    [
        *((content, False) for content in (b"", b"\xff\xfe\xfd")),
        *((content, True) for content in (b"{}", b"[]", b"5", b'{"skipped": [], "files": []}')),
        (b'{"skipped": [1], "files": []}', True),
        (b'{"skipped": [], "files": [{"name": "x"}]}', True),
        (b'{"format": "x", "settings": {}, "skipped": [], "files": [], "y": 1}', True),
        (OF_FILES_ELSEWHERE, False),
    ],
)
def test_manifest_that_is_none_is_told_so(tmp_path, content, is_json):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.json is not a manifest"):
        Manifest.load(tmp_path / "x.json")
    (problem,) = verify(tmp_path / "x.json")[1]
    why = ": it must be the JSON file that pack writes beside its files" if is_json else ""
    assert problem.startswith(f"{tmp_path}/x.json is not a manifest{why}")


# --- read by others ---


def test_mxnet_reads_what_was_packed(tmp_path, mx_recordio):
    samples = [(jpeg(0), 4), (jpeg(1), [0.5, 2])]
    pack(samples, tmp_path / "x.rec", format="recordio")
    reader = mx_recordio.MXIndexedRecordIO(str(tmp_path / "x.idx"), str(tmp_path / "x.rec"), "r")
    read = [mx_recordio.unpack(reader.read_idx(number)) for number in range(2)]
    reader.close()
    assert [(np.ravel(header.label).tolist(), header.id, image) for header, image in read] == [
        ([4.0], 0, jpeg(0)),
        ([0.5, 2.0], 1, jpeg(1)),
    ]


def test_tensorflow_reads_what_was_packed(tmp_path, tf):
    pack([(jpeg(n), n) for n in range(5)], tmp_path / "x", format="tfrecord", shard_bytes=2500)
    kinds = {"image/encoded": tf.string, "image/class/label": tf.int64, "image/id": tf.int64}
    features = {name: tf.io.FixedLenFeature([], kind) for name, kind in kinds.items()}
    found = []
    for record in tf.data.TFRecordDataset(sorted(map(str, tmp_path.glob("*.tfrecord")))):
        sample = tf.io.parse_single_example(record, features)
        found.append(tuple(sample[name].numpy() for name in features))
    assert found == [(jpeg(number), number, number) for number in range(5)]


def test_two_runs_at_once_are_refused(tmp_path, source):
    out, how = tmp_path / "out" / "train", {"format": "recordio", "on_error": "skip"}

    def second(done: int, total: int) -> None:
        with pytest.raises(FileExistsError, match=r"another run packs into .*train\.packing"):
            pack(source, out, **how)

    pack(source, out, progress=second, **how)
    assert verify(f"{out}.json")[1] == []
    assert pack(source, out, **how).packed > 0


SORTED = np.repeat(np.arange(4), 10)
MIXED = np.arange(40) % 4


# --- the order ---


def labels_of(source, path, **options):
    """The labels in the order of the file, and the seed that the manifest names."""
    manifest = pack(source, path, format="recordio", encoding="raw", **options)
    assert Manifest.load(path.with_suffix(".json")).seed == manifest.seed
    with open_records(path, decode="image") as records:
        return [int(label) for _, label in records], manifest.seed


def arrays(labels):
    return np.arange(len(labels) * 4, dtype=np.uint8).reshape(-1, 2, 2), labels


@pytest.mark.parametrize("kind", ["arrays", "list", "records", "folder", "images", "part"])
def test_order_by_class_is_shuffled(tmp_path, kind):
    x, y = arrays(SORTED)
    if kind == "records":
        labels_of((x, y), tmp_path / "sorted.rec", seed=None)
    else:
        folder(tmp_path / "in", 40, ["ant", "bee", "cat", "dog"])
    source = {
        "arrays": lambda: (x, y),
        "list": lambda: list(zip(x, y.tolist())),
        "records": lambda: open_records(tmp_path / "sorted.rec", decode="image"),
        "folder": lambda: tmp_path / "in",
        "images": lambda: open_images(tmp_path / "in"),
        "part": lambda: split(open_images(tmp_path / "in"), [0.5, 0.5])[0],
    }[kind]()
    labels, seed = labels_of(source, tmp_path / "x.rec")
    assert seed == 0
    assert np.count_nonzero(np.diff(labels)) + 1 >= len(labels) / 2
    if kind != "part":
        assert sorted(labels) == SORTED.tolist()


@pytest.mark.parametrize("kind", ["arrays", "list", "records", "table", "converted"])
def test_labels_with_a_fraction_are_all_floats(tmp_path, kind):
    """So that TensorFlow's readers find one kind of list; whole ones alone are integers."""
    for labels, dtype in (([1.0, 2.5, 3.0], np.float32), ([1.0, 2.0, 3.0], np.int64)):
        out, images = tmp_path / f"{dtype.__name__}.tfrecord", [jpeg(n) for n in range(3)]
        rec, table = tmp_path / "x.rec", tmp_path / "x.csv"
        pack(list(zip(images, labels)), rec, format="recordio")
        for number, image in enumerate(images):
            (tmp_path / f"{number}.jpg").write_bytes(image)
        rows = [f"{number}.jpg,{label}\n" for number, label in enumerate(labels)]
        table.write_text("file,label\n" + "".join(rows))
        if kind == "converted":
            convert(rec, out, format="tfrecord")
        else:
            source = {
                "arrays": (np.zeros((3, 4, 4, 3), "u1"), np.array(labels)),
                "list": list(zip(images, labels)),
                "records": open_records(rec, decode="image"),
                "table": table,
            }[kind]
            pack(source, out, format="tfrecord")
        found = [sample["image/class/label"] for sample in open_records(out, decode="example")]
        assert ([each.item() for each in found], {each.dtype.type for each in found}) == (
            labels,
            {dtype},
        )


@pytest.mark.parametrize(
    ("labels", "options"), [(MIXED, {}), (np.arange(40), {}), (SORTED, {"seed": None})]
)
def test_order_of_others_is_kept_or_if_asked(tmp_path, labels, options):
    assert labels_of(arrays(labels), tmp_path / "x.rec", **options) == (labels.tolist(), None)


def test_seed_shuffles_any_order(tmp_path):
    numbers = list(range(40))
    first, seed = labels_of(arrays(np.arange(40)), tmp_path / "x.rec", seed=5)
    other, _ = labels_of(arrays(np.arange(40)), tmp_path / "y.rec", seed=6)
    assert (seed, sorted(first), sorted(other)) == (5, numbers, numbers)
    assert first != other


# --- keys of MXNet's index ---


def listed(place: Path, numbers: list[int]) -> Path:
    place.mkdir()
    lines = []
    for at, number in enumerate(numbers):
        (place / f"{at}.jpg").write_bytes(jpeg(at))
        lines.append(f"{number}\t{at // 10}.0\t{at}.jpg\n")
    path = place / "train.lst"
    path.write_text("".join(lines))
    return path


def keys_of(path: Path) -> list[int]:
    lines = index_paths(path)[0].read_text().splitlines()
    return [int(line.split("\t")[0]) for line in lines]


NUMBERS = [7 * number + 5 for number in range(20)]


@pytest.mark.parametrize(("shard_bytes", "workers"), [(1 << 20, 1), (8000, 2)])
def test_keys_are_the_ids_of_the_list(shard_bytes, workers, tmp_path):
    """They find their records."""
    source, out = listed(tmp_path / "in", NUMBERS), tmp_path / "x.rec"
    manifest = pack(source, out, format="recordio", shard_bytes=shard_bytes, workers=workers)
    files = [out.with_name(each.name) for each in manifest.files]
    assert (len(files) > 1) is (shard_bytes < 1 << 20)
    keys = [key for file in files for key in keys_of(file)]
    with open_records(files) as records:
        assert [irheader.unpack(memoryview(each)).id for each in records] == keys
    assert (sorted(keys), keys != NUMBERS) == (NUMBERS, True)


def test_keys_are_no_shared_ids(tmp_path):
    pack(listed(tmp_path / "in", [3] * 20), tmp_path / "x.rec", format="recordio")
    assert keys_of(tmp_path / "x.rec") == list(range(20))
