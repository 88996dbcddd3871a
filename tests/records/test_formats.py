"""RecordIO and TFRecord: golden bytes, the frameworks' own readers and writers, damage."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given

from adapters import RecordError, open_records
from adapters.records import recordio, tfrecord
from tests.records import materials
from tests.records.materials import FEW, MAGIC, decoded, encoded, flips, read, rewritten, written

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
RECORDS = list(materials.PAYLOADS.values())


@pytest.mark.parametrize(("codec", "payload", "content"), GOLDEN)
def test_golden_bytes(codec, payload, content):
    assert codec.encode(payload) == bytes.fromhex(content)
    assert bytes(codec.read(materials.Memory(bytes.fromhex(content)), 0, 0)) == payload


@pytest.mark.parametrize("format", materials.FORMATS)
@given(records=materials.payloads)
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
    payload = codec.read(materials.Memory(content), 0, 0)
    content[begin] = ord("z")
    assert bytes(payload) == b"zbcd"


@pytest.mark.parametrize("codec", [recordio, tfrecord])
@pytest.mark.parametrize("offset", [-4, -1, 12, 20, 2**62])
def test_offset_outside_the_file_is_an_error(codec, offset):
    with pytest.raises(RecordError):
        codec.read(materials.Memory(codec.encode(b"abcd")), offset, 0)


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**31])
def test_tfrecord_length_beyond_the_file(length):
    head = length.to_bytes(8, "little")
    content = head + tfrecord.masked_crc(head).to_bytes(4, "little") + bytes(8)
    with pytest.raises(RecordError, match=f"expected {length + 16} bytes, found 20 before"):
        tfrecord.end(materials.Memory(content), 0)


def test_tfrecord_size_is_that_of_its_index():
    content = materials.Memory(tfrecord.encode(b"abc") + bytes(9))
    assert tfrecord.read(content, 0, 0, size=19) == b"abc"
    with pytest.raises(RecordError, match=r"expected 20 bytes, as the index has it, found 19 \("):
        tfrecord.read(content, 0, 0, size=20)


def test_recordio_flipped_bit_is_an_error_or_that_bit(tmp_path):
    path = written(tmp_path, "recordio", FEW)
    content = path.read_bytes()
    materials.index_written(path)
    for place, flipped in flips(content):
        rewritten(path, flipped, index_is_newer=bool(place % 2))
        try:
            found = read(path, "recordio")
        except RecordError:
            found = FEW
        assert len(found) == len(FEW)
        assert sum(map(_differs, found, FEW)) <= 1


def test_recordio_wrong_bit_in_a_header_costs_one_record(tmp_path):
    payloads = [bytes([number]) * 20 for number in range(4)]
    path = written(tmp_path, "recordio", payloads)
    for _, flipped in [*flips(path.read_bytes())][8 * 28 : 8 * 35 + 5]:  # All but the flag.
        path.write_bytes(flipped)
        source = open_records(path)
        with pytest.raises(RecordError):
            source[1]
        assert [source[0], *source[2:]] == [payloads[0], *payloads[2:]]


@pytest.mark.parametrize("index_is_newer", [False, True, None])
def test_recordio_length_that_spans_records_costs_one_record(index_is_newer, tmp_path):
    """It ends at a header: of a listed record, or, without an index, of a part in the middle."""
    payloads = [bytes([number]) * 20 for number in range(4)]
    payloads[3] += MAGIC + bytes(20)
    path = written(tmp_path, "recordio", payloads)
    content = bytearray(path.read_bytes())
    content[4] = 20 + (3 if index_is_newer is None else 2) * 28
    if index_is_newer is not None:
        materials.index_written(path)
    rewritten(path, bytes(content), bool(index_is_newer))
    source = open_records(path)
    with pytest.raises(RecordError):
        source[0]
    assert source[1:] == payloads[1:]


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


WRONG_MAGIC = recordio.encode(b"abcd") + b"\x0b#\xd7\xce" + bytes(4)
WRONG_CRC = tfrecord.encode(b"abc") + tfrecord.encode(b"abc").replace(b"abc", b"abd")


@pytest.mark.parametrize(
    ("format", "content", "offset", "expected", "found"),
    [
        ("recordio", WRONG_MAGIC, 12, "the magic number 0xced7230a", "0xced7230b"),
        ("tfrecord", WRONG_CRC, 19, "0x593cafda, the CRC of the data", "0x21f1576e"),
    ],
)
def test_error_says_where_and_what(format, content, offset, expected, found):
    with pytest.raises(RecordError) as caught:
        decoded(format, content)
    error = caught.value
    assert (error.file, error.record, error.offset) == ("memory", 1, offset)
    assert (error.expected, error.found) == (expected, found)


ONE, INNER = recordio.encode(bytes(8)), recordio.encode(b"a" + recordio.encode(b"inner"))
DAMAGED = {
    "a later part first": (bytes.fromhex("0a23d7ce 00000060"), 0, "flag 3"),
    "an unknown flag": (bytes.fromhex("0a23d7ce 00000080"), 0, "flag 4"),
    "a first part, then a record": (bytes.fromhex("0a23d7ce 00000020") + ONE, 0, "flag 0"),
    "a first part, then the end": (bytes.fromhex("0a23d7ce 00000020"), 0, "0 before the file's"),
    "too little data": (ONE[:-3], 0, "expected 16 bytes, found 13 before the file's end"),
    "half a header": (ONE[:5], 0, "5 before the file's end"),
    "a lost flag": (
        recordio.encode(b"abcd" + MAGIC).replace(b"\4\0\0 ", b"\4\0\0\0"),
        0,
        "the next",
    ),
    "a length with the next": (
        ONE[:4] + b"\x18" + ONE[5:] + ONE,
        0,
        "byte 16: expected data, .* fo",
    ),
    "no zeros": (bytes.fromhex("0a23d7ce 01000000 61000100"), 0, "byte 9: .* padding, found 00 01"),
    "an offset in a payload": (INNER, 9, "a multiple of 4"),
}


@pytest.mark.parametrize(("content", "at", "found"), list(DAMAGED.values()), ids=list(DAMAGED))
def test_recordio_damage_is_told(content, at, found):
    with pytest.raises(RecordError, match=found):
        recordio.read(materials.Memory(content), at, 0)


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


@pytest.mark.parametrize("indexed", [False, True])
def test_tfrecord_flipped_bit_is_an_error(indexed, tmp_path):
    path = written(tmp_path, "tfrecord", FEW[:2])
    content = path.read_bytes()
    if indexed:
        materials.index_written(path)
    for place, flipped in flips(content):
        rewritten(path, flipped, index_is_newer=bool(place % 2))
        with pytest.raises(RecordError):
            read(path, "tfrecord")


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_compressed_file_cut_anywhere(compress, tmp_path):
    path = tmp_path / "a.tfrecord"
    content = compress(encoded("tfrecord", FEW[:2]))
    for size in range(1, len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(RecordError):
            read(path, "tfrecord")


def test_tfrecord_without_verify(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord.encode(b"abc").replace(b"abc", b"abd"))
    assert read(path, verify=False) == [b"abd"]
