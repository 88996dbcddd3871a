"""TFRecord: golden bytes, TensorFlow's own reader and writer, truncation, flipped bits."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given

from adapters.errors import RecordError
from adapters.records import RecordFiles, tfrecord
from tests.records.materials import (
    FEW,
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

GOLDEN = {
    "empty": (b"", "0000000000000000 29039807 d8ea82a2"),
    "abc": (b"abc", "0300000000000000 b099490e 616263 6e57f121"),
}
golden = pytest.mark.parametrize(
    ("payload", "content"),
    [(payload, bytes.fromhex(content)) for payload, content in GOLDEN.values()],
    ids=list(GOLDEN),
)
indexes = pytest.mark.parametrize("index", ["none", "older", "newer"])
compressions = pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
RECORDS = list(PAYLOADS.values())


@golden
def test_a_record_is_written_as_these_bytes(payload, content):
    assert tfrecord.encode(payload) == content


@golden
def test_a_record_is_read_from_these_bytes(payload, content):
    assert bytes(tfrecord.read(Memory(content), 0, 0)) == payload


@given(payloads)
def test_any_payloads_come_back(records):
    assert decoded("tfrecord", encoded("tfrecord", records)) == records


def test_tensorflow_reads_what_we_write(tmp_path, tf):
    path = written(tmp_path, "tfrecord", RECORDS)
    found = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    assert found == RECORDS


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_we_read_what_tensorflow_writes(compression, tmp_path, tf):
    path = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for payload in RECORDS:
            writer.write(payload)
    assert read(path) == RECORDS


def test_a_record_is_the_same_bytes_as_tensorflows(tmp_path, tf):
    path = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for payload in RECORDS:
            writer.write(payload)
    assert path.read_bytes() == encoded("tfrecord", RECORDS)


@pytest.mark.parametrize("level", range(1, 10))
def test_we_read_any_level_of_tensorflows_zlib(level, tmp_path, tf):
    path = tmp_path / "a.tfrecord"
    options = tf.io.TFRecordOptions("ZLIB", compression_level=level)
    with tf.io.TFRecordWriter(str(path), options) as writer:
        writer.write(b"payload")
    assert read(path) == [b"payload"]


def test_a_payload_is_not_copied():
    content = bytearray(tfrecord.encode(b"abcd"))
    payload = tfrecord.read(Memory(content), 0, 0)
    content[12] = ord("z")
    assert bytes(payload) == b"zbcd"


def test_a_file_of_several_windows_is_scanned_whole(monkeypatch):
    monkeypatch.setattr(tfrecord, "_WINDOW_BYTES", 16)
    assert decoded("tfrecord", encoded("tfrecord", RECORDS * 3)) == RECORDS * 3


@indexes
def test_a_file_with_any_bit_flipped_is_an_error(index, tmp_path):
    path = written(tmp_path, "tfrecord", FEW)
    content = path.read_bytes()
    if index != "none":
        index_written(path)
    for _, flipped in flips(content):
        rewritten(path, flipped, index == "newer")
        with pytest.raises(RecordError):
            read(path, "tfrecord")
        forget_indexes(path, index != "none")


@indexes
def test_a_flipped_bit_in_a_payload_leaves_the_other_records(index, tmp_path):
    path = written(tmp_path, "tfrecord", FEW)
    content = path.read_bytes()
    if index != "none":
        index_written(path)
    rewritten(path, content.replace(b"first", b"firsu"), index == "newer")
    files = RecordFiles(path)
    assert [bytes(files.read(number)) for number in range(1, 5)] == FEW[1:]


@compressions
def test_a_compressed_file_cut_anywhere_is_an_error(compress, tmp_path):
    path = tmp_path / "a.tfrecord"
    content = compress(encoded("tfrecord", FEW))
    for size in range(1, len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(RecordError):
            read(path, "tfrecord")


@compressions
def test_a_compressed_file_with_any_bit_flipped_is_an_error_or_right(compress, tmp_path):
    """Right where the bit says when the file was compressed or how well, or says nothing."""
    path = tmp_path / "a.tfrecord"
    content = compress(encoded("tfrecord", FEW))
    for _, flipped in flips(content):
        path.write_bytes(flipped)
        try:
            found = read(path, "tfrecord")
        except RecordError:
            continue
        assert found == FEW


def test_without_verify_a_wrong_crc_of_data_is_not_noticed(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfrecord.encode(b"abc").replace(b"abc", b"abd"))
    assert read(path, verify=False) == [b"abd"]


def test_an_error_says_where_and_what():
    content = tfrecord.encode(b"abc") + tfrecord.encode(b"abc").replace(b"abc", b"abd")
    with pytest.raises(RecordError) as caught:
        decoded("tfrecord", content)
    error = caught.value
    assert (error.file, error.record, error.offset) == ("memory", 1, 19)
    assert error.found == "0x21f1576e"
    assert error.expected.endswith(", the CRC of the data")


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**32, 2**31])
def test_a_length_with_a_right_crc_beyond_the_file_is_an_error(length):
    head = length.to_bytes(8, "little")
    content = head + tfrecord.masked_crc(head).to_bytes(4, "little") + bytes(8)
    with pytest.raises(RecordError, match=f"expected {length + 16} bytes, found 20 before"):
        tfrecord.scan(Memory(content))


@pytest.mark.parametrize("offset", [-1, 19, 20, 2**62])
def test_an_offset_outside_the_file_is_an_error(offset):
    with pytest.raises(RecordError):
        tfrecord.read(Memory(tfrecord.encode(b"abc")), offset, 0)
