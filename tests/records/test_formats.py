"""RecordIO and TFRecord: golden bytes, the frameworks' own readers and writers, damage."""

from __future__ import annotations

import contextlib
import gzip
import zlib

import pytest
from hypothesis import given

from adapters.errors import RecordError
from adapters.records import recordio, tfrecord
from tests.records.materials import (
    FEW,
    FORMATS,
    MAGIC,
    PAYLOADS,
    Memory,
    decoded,
    encoded,
    flips,
    forget_indexes,
    index_written,
    payloads,
    read,
    rewritten,
    written,
)

GOLDEN = [
    (recordio, b"", "0a23d7ce 00000000"),
    (recordio, b"abcde", "0a23d7ce 05000000 6162636465 000000"),
    (recordio, b"abcd", "0a23d7ce 04000000 61626364"),
    (recordio, MAGIC, "0a23d7ce 00000020 0a23d7ce 00000060"),
    (recordio, MAGIC * 2, "0a23d7ce 00000020 0a23d7ce 00000040 0a23d7ce 00000060"),
    (recordio, b"abcd" + MAGIC + b"e", "0a23d7ce 04000020 61626364 0a23d7ce 01000060 65 000000"),
    (recordio, b"a" + MAGIC, "0a23d7ce 05000000 61 0a23d7ce 000000"),
    (tfrecord, b"", "0000000000000000 29039807 d8ea82a2"),
    (tfrecord, b"abc", "0300000000000000 b099490e 616263 6e57f121"),
]
RECORDS = list(PAYLOADS.values())


@pytest.mark.parametrize(("codec", "payload", "content"), GOLDEN)
def test_golden_bytes(codec, payload, content):
    assert codec.encode(payload) == bytes.fromhex(content)
    assert bytes(codec.read(Memory(bytes.fromhex(content)), 0, 0)) == payload


@pytest.mark.parametrize("format", FORMATS)
@given(records=payloads)
def test_payloads_come_back(format, records):
    assert decoded(format, encoded(format, records)) == records


def test_recordio_is_mxnets(tmp_path, mx_recordio):
    path = written(tmp_path, "recordio", RECORDS)
    reader = mx_recordio.MXRecordIO(str(path), "r")
    assert [reader.read() for _ in range(len(RECORDS) + 1)] == [*RECORDS, None]
    reader.close()
    writer = mx_recordio.MXRecordIO(str(tmp_path / "b.rec"), "w")
    for payload in RECORDS:
        writer.write(payload)
    writer.close()
    assert (tmp_path / "b.rec").read_bytes() == path.read_bytes()
    assert read(tmp_path / "b.rec") == RECORDS


@pytest.mark.parametrize(("codec", "begin"), [(recordio, 8), (tfrecord, 12)])
def test_payload_is_not_copied(codec, begin):
    content = bytearray(codec.encode(b"abcd"))
    payload = codec.read(Memory(content), 0, 0)
    content[begin] = ord("z")
    assert bytes(payload) == b"zbcd"


@pytest.mark.parametrize("codec", [recordio, tfrecord])
def test_file_of_several_windows_is_scanned_whole(codec, monkeypatch):
    monkeypatch.setattr(codec, "_WINDOW_BYTES", 16)
    records, format = RECORDS * 3, codec.__name__.rpartition(".")[2]
    assert decoded(format, encoded(format, records)) == records


@pytest.mark.parametrize("index", ["none", "older"])
def test_recordio_flipped_bit_is_an_error_or_that_bit(index, tmp_path):
    path = written(tmp_path, "recordio", FEW)
    content = path.read_bytes()
    if index != "none":
        index_written(path)
    for _, flipped in flips(content):
        rewritten(path, flipped, index == "newer")
        try:
            found = read(path, "recordio")
        except RecordError:
            found = FEW
        assert len(found) == len(FEW)
        assert sum(map(_differs, found, FEW)) <= 1
        forget_indexes(path, index != "none")


def _differs(found: bytes, payload: bytes) -> bool:
    """By one bit, or by a length that its padding hides; fails where it differs by more."""
    if found == payload:
        return False
    words = -(-max(len(found), len(payload)) // 4) * 4
    a, b = found.ljust(words, b"\0"), payload.ljust(words, b"\0")
    bits = sum((x ^ y).bit_count() for x, y in zip(a, b))
    assert -(-len(found) // 4) == -(-len(payload) // 4)
    assert bits == (1 if len(found) == len(payload) else 0)
    return True


@pytest.mark.parametrize(
    ("codec", "content", "offset", "expected", "found"),
    [
        (
            recordio,
            recordio.encode(b"abcd") + b"junkjunk",
            12,
            "the magic number 0xced7230a",
            "0x6b6e756a",
        ),
        (
            tfrecord,
            tfrecord.encode(b"abc") + tfrecord.encode(b"abc").replace(b"abc", b"abd"),
            19,
            "0x593cafda, the CRC of the data",
            "0x21f1576e",
        ),
    ],
    ids=FORMATS,
)
def test_error_says_where_and_what(codec, content, offset, expected, found):
    format = codec.__name__.rpartition(".")[2]
    with pytest.raises(RecordError) as caught:
        decoded(format, content)
    error = caught.value
    assert (error.file, error.record, error.offset) == ("memory", 1, offset)
    assert (error.expected, error.found) == (expected, found)


DAMAGED = {
    "a later part first": ("0a23d7ce 00000060", "flag 3"),
    "an unknown flag": ("0a23d7ce 00000080", "flag 4"),
    "a first part, then a record": ("0a23d7ce 00000020 0a23d7ce 00000000", "flag 0"),
    "a first part, then the end": ("0a23d7ce 00000020", "the end|0 before the file's end"),
    "too little data": ("0a23d7ce 05000000 6162636465", "13 before the file's end"),
    "half a header": ("0a23d7ce 00", "5 before the file's end"),
}


@pytest.mark.parametrize(("content", "found"), list(DAMAGED.values()), ids=list(DAMAGED))
def test_recordio_parts_out_of_order(content, found):
    for look in (recordio.scan, lambda storage: recordio.read(storage, 0, 0)):
        with pytest.raises(RecordError, match=found):
            look(Memory(bytes.fromhex(content)))


@pytest.mark.parametrize("size", [8, 10_000])
def test_recordio_record_that_swallows_the_next(size):
    content = bytearray(recordio.encode(bytes(size)) + recordio.encode(bytes(8)))
    content[4:8] = (size + 16).to_bytes(4, "little")
    with pytest.raises(RecordError, match=rf"byte {size + 8}: expected data, .* found 0xced7230a"):
        recordio.read(Memory(content), 0, 0)


def test_recordio_other_damage_is_an_error():
    lost = bytearray(recordio.encode(b"abcd" + MAGIC))
    lost[7] = 0  # The flag: whole.
    inner = recordio.encode(b"a" + recordio.encode(b"inner"))
    assert inner[9:13] == MAGIC
    padding = bytes.fromhex("0a23d7ce 01000000 61 00 01 00")
    for content, offset, said in [
        (lost, 0, "expected the next record, found 0a 23"),
        (padding, 0, "byte 9: expected zeros as padding, found 00 01 00"),
        (inner, 9, "a multiple of 4"),
    ]:
        with pytest.raises(RecordError, match=said):
            recordio.read(Memory(content), offset, 0)


@pytest.mark.parametrize("codec", [recordio, tfrecord])
def test_offset_outside_the_file_is_an_error(codec):
    for offset in (-4, -1, 12, 16, 20, 2**62):
        with pytest.raises(RecordError):
            codec.read(Memory(codec.encode(b"abcd")), offset, 0)


def test_tfrecord_is_tensorflows(tmp_path, tf):
    path = written(tmp_path, "tfrecord", RECORDS)
    found = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    assert found == RECORDS


@pytest.mark.parametrize(("compression", "levels"), [("", [0]), ("GZIP", [6]), ("ZLIB", [1, 6, 9])])
def test_tfrecord_of_tensorflow_is_read(compression, levels, tmp_path, tf):
    path = tmp_path / "a.tfrecord"
    for level in levels:
        options = tf.io.TFRecordOptions(compression, compression_level=level)
        with tf.io.TFRecordWriter(str(path), options) as writer:
            for payload in RECORDS:
                writer.write(payload)
        assert read(path) == RECORDS
    if not compression:
        assert path.read_bytes() == encoded("tfrecord", RECORDS)


@pytest.mark.parametrize("index", ["none", "newer"])
def test_tfrecord_flipped_bit_is_an_error(index, tmp_path):
    path = written(tmp_path, "tfrecord", FEW)
    content = path.read_bytes()
    if index != "none":
        index_written(path)
    for _, flipped in flips(content):
        rewritten(path, flipped, index == "newer")
        with pytest.raises(RecordError):
            read(path, "tfrecord")
        forget_indexes(path, index != "none")


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_damage_anywhere_in_a_compressed_file(compress, tmp_path):
    """A bit may say when the file was compressed or how well, or nothing: it is read then."""
    path = tmp_path / "a.tfrecord"
    content = compress(encoded("tfrecord", FEW[:2]))
    for size in range(1, len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(RecordError):
            read(path, "tfrecord")
    for _, flipped in flips(content):
        path.write_bytes(flipped)
        with contextlib.suppress(RecordError):
            assert read(path, "tfrecord") == FEW[:2]


def test_tfrecord_without_verify(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord.encode(b"abc").replace(b"abc", b"abd"))
    assert read(path, verify=False) == [b"abd"]


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**32, 2**31])
def test_tfrecord_length_beyond_the_file(length):
    head = length.to_bytes(8, "little")
    content = head + tfrecord.masked_crc(head).to_bytes(4, "little") + bytes(8)
    with pytest.raises(RecordError, match=f"expected {length + 16} bytes, found 20 before"):
        tfrecord.scan(Memory(content))


@pytest.mark.parametrize(
    ("format", "index", "verify"),
    [
        ("recordio", "none", False),
        ("recordio", "newer", True),
        ("tfrecord", "none", False),
        ("tfrecord", "older", True),
    ],
)
def test_file_cut_anywhere_is_an_error_or_its_first_records(format, index, verify, tmp_path):
    path = written(tmp_path, format, FEW)
    content = path.read_bytes()
    if index != "none":
        index_written(path)
    whole = [len(encoded(format, FEW[:count])) for count in range(len(FEW) + 1)]
    for size in range(len(content)):
        rewritten(path, content[:size], index == "newer")
        if size in whole:
            assert read(path, format, verify) == FEW[: whole.index(size)]
        else:
            with pytest.raises(RecordError, match=rf"{path.name}, record \d, byte \d+: expected"):
                read(path, format, verify)
        forget_indexes(path, index != "none")
