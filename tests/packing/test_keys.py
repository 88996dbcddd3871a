"""MXNet's index of a packed file has the records' ids for keys, as its own im2rec writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters import open_records, pack
from adapters.records import CODECS, index_paths, irheader
from adapters.records.index import parse
from tests.packing.materials import jpeg, packed


def listed(place: Path, numbers: list[int]) -> Path:
    """A list, and its images: sorted by class, so that they are shuffled."""
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


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("shard_bytes", [1 << 20, 8000])
def test_keys_are_the_ids_of_the_list(shard_bytes, workers, tmp_path):
    source, out = listed(tmp_path / "in", NUMBERS), tmp_path / "x.rec"
    manifest = pack(source, out, format="recordio", shard_bytes=shard_bytes, workers=workers)
    files = [out.with_name(each.name) for each in manifest.files]
    assert (len(files) > 1) is (shard_bytes < 1 << 20)
    keys = [key for file in files for key in keys_of(file)]
    assert keys == [identity for _, identity, _ in packed(out, manifest)]
    assert (sorted(keys), keys != NUMBERS) == (NUMBERS, True)


def test_a_key_finds_its_record_and_the_order_is_the_files(tmp_path):
    path = tmp_path / "x.rec"
    pack(listed(tmp_path / "in", NUMBERS), path, format="recordio")
    offsets = parse(index_paths(path)[0].read_bytes(), CODECS["recordio"]).offsets.tolist()
    assert offsets == sorted(offsets)
    with open_records(path) as records:
        assert [irheader.unpack(memoryview(each)).id for each in records] == keys_of(path)


def test_ids_that_two_records_share_are_no_keys(tmp_path):
    pack(listed(tmp_path / "in", [3] * 20), tmp_path / "x.rec", format="recordio")
    assert keys_of(tmp_path / "x.rec") == list(range(20))


def test_a_file_that_keeps_its_order_has_numbers_for_keys(tmp_path):
    pack([(jpeg(at), at) for at in range(3)], tmp_path / "x.rec", format="recordio")
    assert keys_of(tmp_path / "x.rec") == [0, 1, 2]
