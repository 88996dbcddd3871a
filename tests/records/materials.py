"""Payloads, files made of them, and the ways in which a file can be damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies as st

from adapters.records import CODECS, RecordFiles, Shard, index_paths, sidecar
from adapters.records.index import searched, text_of
from adapters.remote.privatefiles import write_whole

MAGIC = bytes.fromhex("0a23d7ce")
SUFFIXES = {"recordio": ".rec", "tfrecord": ".tfrecord"}
FORMATS = tuple(SUFFIXES)

# Whatever a RecordIO writer may have to cut, and what it must not.
PAYLOADS = {
    "empty": b"",
    "one byte": b"a",
    "a word": b"abcd",
    "the magic number alone": MAGIC,
    "twice in a row": MAGIC * 2,
    "three times in a row": MAGIC * 3,
    "at the start": MAGIC + b"abc",
    "at the end": b"abcd" + MAGIC,
    "at the end, unaligned": b"abc" + MAGIC,
    "in the middle": b"abcd" + MAGIC + b"efghi",
    "in the middle, unaligned": b"ab" + MAGIC + b"efghi",
    "unaligned, then aligned": b"a" + MAGIC + b"abc" + MAGIC + b"z",
    "overlapping an aligned place": b"abcd" + MAGIC[:2] + MAGIC + MAGIC[2:],
    "half of it at the end": b"abcd" + MAGIC[:2],
    "zeros": bytes(9),
}
# A few of these for files whose every bit is flipped.
FEW = [b"first", MAGIC, b"abcd" + MAGIC + b"efg", b""]

magic_rich = st.lists(
    st.one_of(st.just(MAGIC), st.just(MAGIC[:2]), st.binary(max_size=9)), max_size=8
).map(b"".join)
payloads = st.lists(st.one_of(magic_rich, st.binary(max_size=200)), max_size=12)


class Memory:
    name = "memory"

    def __init__(self, content: bytes) -> None:
        self.content = memoryview(content)
        self.size = len(content)

    def read(self, offset: int, size: int) -> memoryview:
        return self.content[offset : offset + size]

    def close(self) -> None:
        pass


def encoded(format: str, records: list[bytes]) -> bytes:
    return b"".join(map(CODECS[format].encode, records))


def decoded(format: str, content: bytes) -> list[bytes]:
    storage, codec = Memory(content), CODECS[format]
    index = searched(storage, codec)
    for error in index.damage.values():
        raise error
    return [bytes(codec.read(storage, at, n)) for n, at in enumerate(index.offsets.tolist())]


def written(folder: Path, format: str, records: list[bytes], stem: str = "a") -> Path:
    path = folder / (stem + SUFFIXES[format])
    path.write_bytes(encoded(format, records))
    return path


def read(path: str | os.PathLike[str], format: str = "auto", verify: bool = True) -> list[bytes]:
    files = RecordFiles(path, format, verify)
    try:
        return [bytes(files.read(number)) for number in range(len(files))]
    finally:
        files.close()


def rewritten(path: Path, content: bytes, index_is_newer: bool = False) -> None:
    """Change a file, and let its index have been written a second before or after."""
    path.write_bytes(content)
    index = index_paths(path)[0]
    if index.exists():
        changed = path.stat().st_mtime_ns + (1 if index_is_newer else -1) * 10**9
        os.utime(index, ns=(changed, changed))


def index_written(path: Path) -> Path:
    """Write the index beside a file, as ``adapters verify --write-index`` does; where it is."""
    shard = Shard(path, "auto", True, index="search")
    place = sidecar.place_of_command(path)
    write_whole(place, text_of(shard.without(shard.damage), shard.codec))
    shard.close()
    return place


def flips(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Each bit flipped: its byte, and what becomes of the content."""
    for place in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        yield place // 8, bytes(flipped)
