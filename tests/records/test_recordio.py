"""RecordIO: golden bytes, MXNet's own reader and writer, truncation, flipped bits."""

from __future__ import annotations

import pytest
from hypothesis import given

from adapters.errors import RecordError
from adapters.records import recordio
from tests.records.materials import (
    FEW,
    MAGIC,
    PAYLOADS,
    Memory,
    decoded,
    encoded,
    flips,
    forget_indexes,
    index_written,
    magic_rich,
    payloads,
    read,
    rewritten,
    written,
)

GOLDEN = {
    "empty": (b"", "0a23d7ce 00000000"),
    "padded": (b"abcde", "0a23d7ce 05000000 6162636465 000000"),
    "of whole words": (b"abcd", "0a23d7ce 04000000 61626364"),
    "the magic number": (MAGIC, "0a23d7ce 00000020 0a23d7ce 00000060"),
    "twice": (MAGIC * 2, "0a23d7ce 00000020 0a23d7ce 00000040 0a23d7ce 00000060"),
    "in between": (
        b"abcd" + MAGIC + b"e",
        "0a23d7ce 04000020 61626364 0a23d7ce 01000060 65 000000",
    ),
    "unaligned": (b"a" + MAGIC, "0a23d7ce 05000000 61 0a23d7ce 000000"),
}
golden = pytest.mark.parametrize(
    ("payload", "content"),
    [(payload, bytes.fromhex(content)) for payload, content in GOLDEN.values()],
    ids=list(GOLDEN),
)
each = pytest.mark.parametrize("payload", list(PAYLOADS.values()), ids=list(PAYLOADS))
indexes = pytest.mark.parametrize("index", ["none", "older", "newer"])


@golden
def test_a_record_is_written_as_these_bytes(payload, content):
    assert recordio.encode(payload) == content


@golden
def test_a_record_is_read_from_these_bytes(payload, content):
    assert bytes(recordio.read(Memory(content), 0, 0)) == payload


@each
def test_a_payload_comes_back(payload):
    assert decoded("recordio", encoded("recordio", [b"before", payload, b"after"])) == [
        b"before",
        payload,
        b"after",
    ]


@given(payloads)
def test_any_payloads_come_back(records):
    assert decoded("recordio", encoded("recordio", records)) == records


@given(magic_rich)
def test_a_record_ends_where_its_bytes_do(payload):
    content = recordio.encode(payload)
    assert recordio.end(Memory(content + recordio.encode(b"next")), 0) == len(content)


@each
def test_mxnet_reads_what_we_write(payload, tmp_path, mx_recordio):
    path = written(tmp_path, "recordio", [payload, b"after"])
    reader = mx_recordio.MXRecordIO(str(path), "r")
    assert [reader.read(), reader.read(), reader.read()] == [payload, b"after", None]


def test_we_read_what_mxnet_writes(tmp_path, mx_recordio):
    path = tmp_path / "a.rec"
    writer = mx_recordio.MXRecordIO(str(path), "w")
    for payload in PAYLOADS.values():
        writer.write(payload)
    writer.close()
    assert read(path) == list(PAYLOADS.values())


@each
def test_a_record_is_the_same_bytes_as_mxnets(payload, tmp_path, mx_recordio):
    writer = mx_recordio.MXRecordIO(str(tmp_path / "a.rec"), "w")
    writer.write(payload)
    writer.close()
    assert (tmp_path / "a.rec").read_bytes() == recordio.encode(payload)


def test_a_payload_in_one_part_is_not_copied():
    content = bytearray(recordio.encode(b"abcd"))
    payload = recordio.read(Memory(content), 0, 0)
    content[8] = ord("z")
    assert bytes(payload) == b"zbcd"


def test_a_payload_of_2_to_the_29_bytes_is_refused():
    with pytest.raises(ValueError, match=r"must be < 536870912 bytes, got 536870912; cut it"):
        recordio.encode(bytes(2**29))


def test_a_file_of_several_windows_is_scanned_whole(monkeypatch):
    monkeypatch.setattr(recordio, "_WINDOW_BYTES", 16)
    records = list(PAYLOADS.values()) * 3
    assert decoded("recordio", encoded("recordio", records)) == records


@indexes
def test_a_file_with_any_bit_flipped_is_an_error_or_that_bit_of_a_payload(index, tmp_path):
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


def test_an_error_says_where_and_what():
    content = recordio.encode(b"abcd") + b"junkjunk"
    with pytest.raises(RecordError) as caught:
        recordio.scan(Memory(content))
    error = caught.value
    assert (error.file, error.record, error.offset) == ("memory", 1, 12)
    assert (error.expected, error.found) == ("the magic number 0xced7230a", "0x6b6e756a")


DAMAGED = {
    "a later part first": ("0a23d7ce 00000060", "flag 3"),
    "an unknown flag": ("0a23d7ce 00000080", "flag 4"),
    "a first part, then a record": ("0a23d7ce 00000020 0a23d7ce 00000000", "flag 0"),
    "a first part, then the end": ("0a23d7ce 00000020", "the end|0 before the file's end"),
    "too little data": ("0a23d7ce 05000000 6162636465", "13 before the file's end"),
    "half a header": ("0a23d7ce 00", "5 before the file's end"),
}
damaged = pytest.mark.parametrize(
    ("content", "found"),
    [(bytes.fromhex(content), found) for content, found in DAMAGED.values()],
    ids=list(DAMAGED),
)


@damaged
@pytest.mark.parametrize(
    "look",
    [lambda s: recordio.scan(s), lambda s: recordio.read(s, 0, 0)],
    ids=["scan", "read"],
)
def test_parts_out_of_order_are_an_error(look, content, found):
    with pytest.raises(RecordError, match=found):
        look(Memory(content))


@pytest.mark.parametrize("size", [8, 10_000])
def test_a_record_that_swallows_the_next_one_is_an_error(size):
    content = bytearray(recordio.encode(bytes(size)) + recordio.encode(bytes(8)))
    content[4:8] = (size + 16).to_bytes(4, "little")
    with pytest.raises(RecordError, match=rf"byte {size + 8}: expected data, .* found 0xced7230a"):
        recordio.read(Memory(content), 0, 0)


def test_a_record_that_lost_its_later_parts_is_an_error():
    content = bytearray(recordio.encode(b"abcd" + MAGIC))
    content[7] = 0  # The flag: whole.
    with pytest.raises(RecordError, match="expected the next record, found 0a 23"):
        recordio.read(Memory(content), 0, 0)


def test_data_in_the_padding_are_an_error():
    with pytest.raises(RecordError, match="byte 9: expected zeros as padding, found 00 01 00"):
        recordio.read(Memory(bytes.fromhex("0a23d7ce 01000000 61 00 01 00")), 0, 0)


@pytest.mark.parametrize("offset", [-4, 12, 16, 2**62])
def test_an_offset_outside_the_file_is_an_error(offset):
    with pytest.raises(RecordError):
        recordio.read(Memory(recordio.encode(b"abcd")), offset, 0)


def test_a_magic_number_at_an_odd_place_begins_no_record():
    content = recordio.encode(b"a" + recordio.encode(b"inner"))
    assert content[9:13] == MAGIC
    with pytest.raises(RecordError, match="a multiple of 4"):
        recordio.read(Memory(content), 9, 0)
