"""The files that pack writes: their names, their sizes, the same bytes each time, read by all."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import open_records, pack
from adapters.images import decode
from adapters.packing import verify
from adapters.packing.run import Run
from adapters.records import RecordFiles, index_paths
from tests.packing.materials import (
    FORMATS,
    SUFFIXES,
    accounted,
    files_in,
    folder,
    image,
    jpeg,
    packed,
)

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = folder(tmp_path_factory.mktemp("in"), 12, ["ant", "bee", "cat"])
    (root / "bee/none.jpg").write_bytes(b"no image")
    return root


def written(source: Any, out: Path, **options: Any) -> dict[str, bytes]:
    """All that is in the folder of ``out`` after packing."""
    pack(source, out, **{"format": "recordio", "on_error": "skip", **options})
    return files_in(out.parent)


# --- the same bytes ---


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("workers", [0, 1, 7, "auto"])
def test_the_bytes_do_not_depend_on_the_workers(tmp_path, source, format, workers):
    options = {"format": format, "resize": 16, "shard_bytes": 2500}
    expected = written(source, tmp_path / "a/out", workers=2, **options)
    assert written(source, tmp_path / "b/out", workers=workers, **options) == expected


def test_a_new_process_writes_the_same_bytes(tmp_path, source):
    expected = written(source, tmp_path / "a/out", resize=16, shard_bytes=2500)
    script = (
        "import sys; from adapters import pack\n"
        "pack(*sys.argv[1:], format='recordio', on_error='skip', resize=16, shard_bytes=2500)"
    )
    command = [sys.executable, "-W", "error", "-c", script, source, tmp_path / "b/out"]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run(command, check=True, cwd=ROOT, timeout=60, env=environment)
    assert files_in(tmp_path / "b") == expected


def test_packing_again_writes_the_same_bytes(tmp_path, source):
    expected = written(source, tmp_path / "out", shard_bytes=2500)
    assert written(source, tmp_path / "out", shard_bytes=2500) == expected


# --- files and their names ---


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shard_bytes", [1, 1000, 2500, 10**6])
def test_no_file_is_larger_than_asked_unless_one_record_is(tmp_path, source, format, shard_bytes):
    manifest = pack(
        source, tmp_path / "out", format=format, on_error="skip", shard_bytes=shard_bytes
    )
    sizes = [(tmp_path / each.name).stat().st_size for each in manifest.files]
    assert all(
        size <= shard_bytes or each.records == 1 for size, each in zip(sizes, manifest.files)
    )
    assert accounted(manifest)


@pytest.mark.parametrize("format", FORMATS)
def test_files_are_as_full_as_they_may_be(tmp_path, source, format):
    manifest = pack(source, tmp_path / "out", format=format, on_error="skip", shard_bytes=2500)
    files = [RecordFiles(tmp_path / each.name) for each in manifest.files]
    first_sizes = [shard.storage.size // len(shard) for file in files for shard in file.shards]
    assert all(
        each.bytes + 2 * size > 2500 for each, size in zip(manifest.files[:-1], first_sizes[1:])
    )


def test_a_file_may_be_exactly_as_large_as_asked(tmp_path):
    images = np.zeros((4, 10, 10), np.uint8)
    options: dict[str, Any] = {"format": "recordio", "encoding": "raw"}
    total = pack((images, range(4)), tmp_path / "all", **options).files[0].bytes
    for size, files in ((total // 2, 2), (total // 2 - 1, 4)):
        again = pack((images, range(4)), tmp_path / "cut", shard_bytes=size, **options)
        assert len(again.files) == files


@pytest.mark.parametrize("format", FORMATS)
def test_a_record_that_is_larger_than_a_file_gets_its_own(tmp_path, format):
    samples = [(image(0, 4, 4), 0), (image(1, 200, 200), 1), (image(2, 4, 4), 2)]
    manifest = pack(samples, tmp_path / "out", format=format, shard_bytes=2000)
    assert [each.records for each in manifest.files] == [1, 1, 1]


@pytest.mark.parametrize("format", FORMATS)
def test_names_say_how_many_files_there_are(tmp_path, source, format):
    names = set(written(source, tmp_path / "train", format=format, shard_bytes=4000))
    stems = [f"train-{number:05d}-of-00003" for number in range(3)]
    expected = {f"{stem}{ending}" for stem in stems for ending in (SUFFIXES[format], ".idx")}
    assert names == expected | {"train.json"}


@pytest.mark.parametrize(
    ("out", "name"),
    [
        ("train.rec", "train.rec"),
        ("train", "train-00000-of-00001.rec"),
        ("train.v2", "train.v2-00000-of-00001.rec"),
        ("train.v2.rec", "train.v2.rec"),
        ("new/folders/train.rec", "new/folders/train.rec"),
    ],
)
def test_a_name_with_the_ending_is_that_of_a_single_file(tmp_path, source, out, name):
    pack(source, tmp_path / out, format="recordio", on_error="skip")
    assert (tmp_path / name).is_file()


@pytest.mark.parametrize("ending", [".tfrecord", ".tfrecords"])
def test_the_ending_is_kept_where_there_are_several_files(tmp_path, source, ending):
    names = written(source, tmp_path / f"x{ending}", format="tfrecord", shard_bytes=4000)
    assert {Path(name).suffix for name in names} == {ending, ".idx", ".json"}


@pytest.mark.parametrize("name", ["out", "out.rec"])
def test_in_a_folder_the_files_are_called_data(tmp_path, source, name):
    (tmp_path / name).mkdir()
    pack(source, tmp_path / name, format="recordio", on_error="skip")
    expected = {"data-00000-of-00001.rec", "data-00000-of-00001.idx", "data.json"}
    assert set(files_in(tmp_path / name)) == expected


def test_every_file_has_an_index_that_fits(tmp_path, source, monkeypatch):
    written(source, tmp_path / "out", shard_bytes=2500)
    monkeypatch.setattr("adapters.records.recordio.scan", None)  # Would be asked without one.
    assert len(open_records(tmp_path / "out-*.rec")) == 12


# --- beside other files ---


def test_files_of_the_run_before_go(tmp_path, source):
    expected = written(source, tmp_path / "a/out", shard_bytes=4000)
    written(source, tmp_path / "b/out", shard_bytes=1500)
    assert written(source, tmp_path / "b/out", shard_bytes=4000) == expected


def test_a_single_file_gives_way_to_several(tmp_path, source):
    expected = written(source, tmp_path / "a/out.rec", shard_bytes=4000)
    written(source, tmp_path / "b/out.rec")
    assert written(source, tmp_path / "b/out.rec", shard_bytes=4000) == expected


def test_files_of_others_stay(tmp_path, source):
    """Even such as are called alike."""
    for name in ("out-00000-of-00009.rec", "out-00000-of-00009.idx", "out.txt", "out2.json"):
        (tmp_path / name).write_text("mine")
    written(source, tmp_path / "out", shard_bytes=1500)
    after = written(source, tmp_path / "out")
    assert sorted(name for name, content in after.items() if content == b"mine") == [
        "out-00000-of-00009.idx",
        "out-00000-of-00009.rec",
        "out.txt",
        "out2.json",
    ]


def test_the_index_of_another_file_of_that_stem_stays(tmp_path, source):
    """The index of x.rec is x.idx, as is that of x.tfrecord."""
    pack(source, tmp_path / "x.tfrecord", format="tfrecord", on_error="skip")
    (tmp_path / "x.json").unlink()
    index = (tmp_path / "x.idx").read_bytes()
    pack(source, tmp_path / "x.rec", format="recordio", on_error="skip")
    assert (tmp_path / "x.idx").read_bytes() == index
    assert (tmp_path / "x.rec.idx").is_file()


def test_the_index_of_another_file_stays_when_a_file_of_the_run_before_goes(tmp_path, source):
    pack(source, tmp_path / "x.tfrecord", format="tfrecord", on_error="skip")
    (tmp_path / "x.json").unlink()
    pack(source, tmp_path / "x.rec", format="recordio", on_error="skip")
    pack(source, tmp_path / "x.rec", format="recordio", on_error="skip", shard_bytes=2500)
    left = {name for name in files_in(tmp_path) if name.startswith("x.")}
    assert left == {"x.tfrecord", "x.idx", "x.json"}


@pytest.mark.parametrize("content", ['{"images": []}', "no JSON", "[]", ""])
def test_a_file_that_has_the_manifests_name_is_not_replaced(tmp_path, source, content):
    (tmp_path / "out.json").write_text(content)
    for _ in range(2):
        pack(source, tmp_path / "out.rec", format="recordio", on_error="skip")
    assert set(files_in(tmp_path)) == {"out.json", "out.rec", "out.idx", "out.rec.json"}
    assert (tmp_path / "out.json").read_text() == content


def test_files_that_have_both_of_the_manifests_names_are_not_replaced(tmp_path, source):
    for name in ("out.json", "out.rec.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(FileExistsError, match="out must leave the manifest a name"):
        pack(source, tmp_path / "out.rec", format="recordio", on_error="skip")
    assert files_in(tmp_path) == {"out.json": b"{}", "out.rec.json": b"{}"}


def test_both_formats_have_room_under_one_stem(tmp_path, source):
    for _ in range(2):
        for format in ("recordio", "tfrecord"):
            manifest = pack(source, tmp_path / "out", format=format, on_error="skip")
            assert manifest.format == format
    for name in ("out.json", "out.tfrecord.json"):
        good, wrong = verify(tmp_path / name)
        assert (good > 0, wrong) == (True, [])


def test_a_source_whose_packing_failed_leaves_nothing(tmp_path):
    with pytest.raises(TypeError):
        pack([(image(0), 0), 5], tmp_path / "out", format="recordio")
    assert list(tmp_path.iterdir()) == []


# --- progress and arguments ---


def test_progress_counts_every_input_once(tmp_path, source):
    seen: list[tuple[int, int]] = []
    progress = lambda *counts: seen.append(counts)  # noqa: E731
    written(source, tmp_path / "out", progress=progress, shard_bytes=2500, workers=3)
    assert seen == [(done, 13) for done in range(14)]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"format": "zip"}, ValueError, 'format must be "recordio" or "tfrecord", got \'zip\''),
        ({"encoding": "png"}, ValueError, "encoding must be"),
        ({"on_error": "ignore"}, ValueError, "on_error must be"),
        ({"shard_bytes": 0}, ValueError, "shard_bytes must be >= 1, got 0"),
        ({"shard_bytes": "1MB"}, TypeError, "shard_bytes must be an integer"),
        ({"resize": 0}, ValueError, "resize must be >= 1 or None, got 0"),
        ({"resize": 2.5}, TypeError, "resize must be an integer"),
        ({"quality": 0}, ValueError, "quality must be >= 1"),
        ({"quality": 101}, ValueError, "quality must be <= 100, got 101"),
        ({"quality": 90, "encoding": "raw"}, ValueError, 'quality is about encoding="jpeg"'),
        ({"workers": -1}, ValueError, 'workers must be >= 0 or "auto", got -1'),
        ({"workers": None}, TypeError, "workers must be"),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_written(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        pack([(image(0), 0)], tmp_path / "x/out", **{"format": "recordio", **options})
    assert list(tmp_path.iterdir()) == []


# --- read by others ---


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("encoding", ["jpeg", "raw"])
def test_open_records_reads_what_was_packed(tmp_path, format, encoding):
    samples = [(jpeg(number), number) for number in range(7)]
    pack(samples, tmp_path / "x", format=format, encoding=encoding, shard_bytes=3000)
    records = open_records(tmp_path / f"x-*{SUFFIXES[format]}", decode="image")
    assert [label for _, label in records] == list(range(7))
    assert all(
        np.array_equal(found, decode(given)) for (found, _), (given, _) in zip(records, samples)
    )


@pytest.fixture(scope="module")
def mxnet() -> Any:
    if find_spec("mxnet") is None or int(np.__version__.split(".")[0]) > 1:
        pytest.skip("MXNet has wheels for some Pythons, and takes NumPy 1 only")
    from adapters.gluon import import_mxnet

    with warnings.catch_warnings():
        # While it is imported, MXNet looks at every name that NumPy ever had.
        warnings.simplefilter("ignore", DeprecationWarning)
        return import_mxnet()


def test_mxnet_reads_what_was_packed(tmp_path, mxnet):
    samples = [(jpeg(0), 4), (jpeg(1), [0.5, 2])]
    pack(samples, tmp_path / "x.rec", format="recordio")
    reader = mxnet.recordio.MXIndexedRecordIO(str(tmp_path / "x.idx"), str(tmp_path / "x.rec"), "r")
    read = [mxnet.recordio.unpack(reader.read_idx(number)) for number in range(2)]
    reader.close()
    assert [(np.ravel(header.label).tolist(), header.id, image) for header, image in read] == [
        ([4.0], 0, jpeg(0)),
        ([0.5, 2.0], 1, jpeg(1)),
    ]


@pytest.mark.filterwarnings("ignore:Please import `csr_matrix`:DeprecationWarning")
def test_gluons_record_data_set_reads_what_was_packed(tmp_path, mxnet):
    pack([(jpeg(n), n) for n in range(3)], tmp_path / "x.rec", format="recordio")
    read = mxnet.gluon.data.vision.ImageRecordDataset(str(tmp_path / "x.rec"))
    assert [label for _, label in (read[n] for n in range(3))] == [0.0, 1.0, 2.0]
    assert np.array_equal(read[2][0].asnumpy(), decode(jpeg(2)))
    read._record.close()


def test_tensorflow_reads_what_was_packed(tmp_path):
    tensorflow = pytest.importorskip("tensorflow", reason="an optional framework")
    pack([(jpeg(n), n) for n in range(5)], tmp_path / "x", format="tfrecord", shard_bytes=2500)
    features = {
        "image/encoded": tensorflow.io.FixedLenFeature([], tensorflow.string),
        "image/class/label": tensorflow.io.FixedLenFeature([], tensorflow.int64),
        "image/id": tensorflow.io.FixedLenFeature([], tensorflow.int64),
    }
    files = sorted(str(path) for path in tmp_path.glob("*.tfrecord"))
    read = [
        tensorflow.io.parse_single_example(record, features)
        for record in tensorflow.data.TFRecordDataset(files)
    ]
    found = [tuple(each[name].numpy() for name in features) for each in read]
    assert found == [(jpeg(number), number, number) for number in range(5)]


def test_indexes_are_where_readers_look_for_them(tmp_path, source):
    written(source, tmp_path / "x.rec")
    assert index_paths(tmp_path / "x.rec")[0].is_file()


def test_a_manifest_and_the_records_agree(tmp_path, source):
    manifest = pack(source, tmp_path / "x", format="recordio", on_error="skip", shard_bytes=2500)
    assert len(packed(tmp_path / "x", manifest)) == manifest.packed == 12


def test_two_runs_do_not_write_the_same_files_at_once(tmp_path, source):
    """The second one is told so, and later runs."""
    started, go_on = threading.Event(), threading.Event()

    def waiting(done: int, total: int) -> None:
        started.set()
        assert go_on.wait(60)

    out = tmp_path / "out" / "train"
    how: Any = {"format": "recordio", "on_error": "skip"}
    run = threading.Thread(target=pack, args=(source, out), kwargs={**how, "progress": waiting})
    run.start()
    try:
        assert started.wait(60)
        with pytest.raises(FileExistsError, match=r"another run packs into .*train\.packing"):
            pack(source, out, **how)
    finally:
        go_on.set()
        run.join()
    assert verify(f"{out}.json")[1] == []
    assert pack(source, out, **how).packed > 0


def test_as_many_threads_as_the_cgroup_has_cpus(tmp_path, monkeypatch):
    """And not as many as the machine has."""
    counts, write_all = [], Run._write_all
    monkeypatch.setattr("adapters.packing.executors.usable_cpus", lambda: 3)
    monkeypatch.setattr(
        Run,
        "_write_all",
        lambda run, workers, told: (
            counts.append(workers.count),
            write_all(run, workers, told),
        ),
    )
    pack((np.zeros((4, 8, 8), np.uint8), range(4)), tmp_path / "x", format="recordio")
    assert counts == [3]
