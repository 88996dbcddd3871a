"""Many files at once: no descriptors, and as many maps as there is room for."""

from __future__ import annotations

import errno
import gc
import gzip

import numpy as np
import pytest

from adapters.records import RecordFiles, mapping, storage
from adapters.records.inflation import InflatedFile
from adapters.records.mapping import Mapping, NoMapError, living
from adapters.records.storage import MappedFile
from tests.images.pictures import npy
from tests.records.materials import SUFFIXES, encoded, written
from tests.records.processes import mapped, run
from tests.sources.record_files import payload

MANY = """
import os, resource, sys
from concurrent.futures import ThreadPoolExecutor
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
from adapters.records import RecordFiles, storage
storage._MOST_MAPPED = int(sys.argv[2])
files, before = RecordFiles(sys.argv[1]), len(os.listdir("/proc/self/fd"))
with ThreadPoolExecutor(4) as pool:
    held = list(pool.map(files.read, range(len(files))))  # All at once, as a batch does.
assert [bytes(payload) for payload in held] == [b"%d" % n for n in range(400)]
assert len(os.listdir("/proc/self/fd")) <= before + 2, os.listdir("/proc/self/fd")
"""


@pytest.mark.parametrize("most", [20, 1000], ids=["unmapped", "mapped"])
@pytest.mark.parametrize("kind", ["recordio", "tfrecord", "compressed"])
def test_files_take_no_descriptors_however_many_are_held(kind, most, tmp_path):
    """400 files under a limit of 100, a part of each held: a map of one needs no descriptor."""
    for number in range(400):
        path = written(tmp_path, kind.replace("compressed", "tfrecord"), [b"%d" % number])
        content = path.read_bytes()
        path.rename(tmp_path / f"{number:03}")
        if kind == "compressed":
            (tmp_path / f"{number:03}").write_bytes(gzip.compress(content))
    run(MANY, str(tmp_path / "???"), str(most))


SHARDS = 10_000
EVERY_RECORD = """
import resource, sys
import numpy as np
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
from adapters import SafeSequence, open_records
source = open_records(sys.argv[1], decode="image")
assert len(source) == int(sys.argv[2])
with SafeSequence(source, 100, shuffle=True, seed=7, workers=2) as sequence:
    images, labels = map(np.concatenate, zip(*sequence))
assert labels.tolist() != sorted(labels) == list(range(len(source)))
assert (images.reshape(-1, 3) == labels.astype("<u4").view("u1").reshape(-1, 4)[:, :3]).all()
"""


def number_image(number: int) -> np.ndarray:
    """A pixel that only this number gives."""
    return np.frombuffer(number.to_bytes(3, "little"), np.uint8).reshape(1, 1, 3)


@pytest.mark.serial
@pytest.mark.full
@pytest.mark.parametrize("format", ["recordio", "tfrecord"])
def test_every_record_of_ten_thousand_files_is_read_under_the_usual_limit(format, tmp_path):
    for shard in range(SHARDS):
        numbers = (shard, SHARDS + shard)
        records = [payload(format, npy(number_image(each)), each) for each in numbers]
        written(tmp_path, format, records, f"{shard:05}")
    run(EVERY_RECORD, str(tmp_path / f"*{SUFFIXES[format]}"), str(2 * SHARDS))


def test_only_so_many_files_stay_mapped(tmp_path, monkeypatch):
    for number in range(30):
        written(tmp_path, "recordio", [b"%d" % number], f"{number:03}")
    gc.collect()  # What goes meanwhile makes room.
    monkeypatch.setattr(storage, "_MOST_MAPPED", living() + 10)
    files = RecordFiles(str(tmp_path / "*.rec"))
    assert [bytes(files.read(number)) for number in range(30)] == [b"%d" % n for n in range(30)]
    assert 0 < mapped(tmp_path) <= 10


def test_a_file_that_somebody_holds_is_not_mapped_a_second_time(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_MOST_MAPPED", 0)
    files = RecordFiles(written(tmp_path, "recordio", [b"one", b"two"]))
    held = files.read(0)
    assert [bytes(files.read(1)), mapped(tmp_path)] == [b"two", 1]
    assert bytes(held) == b"one"


def no_room(*_) -> None:
    raise NoMapError(12, "no room")


@pytest.mark.parametrize("kind", ["plain", "compressed"])
def test_a_file_is_read_where_there_is_no_room_for_a_map(kind, tmp_path, monkeypatch):
    path = tmp_path / "a"
    content = encoded("tfrecord", [b"one", b"two"])
    path.write_bytes(content if kind == "plain" else gzip.compress(content))
    files = RecordFiles(path)
    files.shards[0].close()
    monkeypatch.setattr(storage, "Mapping", no_room)
    assert [bytes(files.read(number)) for number in range(2)] == [b"one", b"two"]


def test_files_that_nobody_holds_make_room_for_a_map(tmp_path, monkeypatch):
    """Compressed ones, too, which are inflated again."""
    paths = [tmp_path / name for name in ("a.gz", "b", "c")]
    for path in paths:
        content = path.name[:1].encode() * 3
        path.write_bytes(gzip.compress(content) if path.suffix else content)
    inflated, plain, another = InflatedFile(MappedFile(paths[0])), *map(MappedFile, paths[1:])
    plain.read(0, 1)

    def crowded(descriptor: int, size: int) -> Mapping:
        return Mapping(descriptor, size) if not (plain._view or inflated._view) else no_room()

    monkeypatch.setattr(storage, "Mapping", crowded)
    assert bytes(another.read(0, 3)) == b"ccc"
    assert [bytes(file.read(0, 3)) for file in (plain, inflated)] == [b"bbb", b"aaa"]


def test_a_system_that_has_no_room_says_how_many_files_are_mapped(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"x")
    monkeypatch.setattr(mapping, "_mmap", lambda *_: mapping._FAILED)
    monkeypatch.setattr(mapping.ctypes, "get_errno", lambda: errno.ENOMEM)
    with path.open() as file, pytest.raises(NoMapError, match="files mapped"):
        Mapping(file.fileno(), 1)


@pytest.mark.parametrize(("said", "most"), [("65530\n", 16382), ("none", 16382), ("8", 2)])
def test_a_quarter_of_the_systems_maps_is_used(said, most, tmp_path, monkeypatch):
    limit = tmp_path / "limit"
    if said != "none":
        limit.write_text(said)
    monkeypatch.setattr(mapping, "_MAP_LIMIT", str(limit))
    assert mapping.most() == most
