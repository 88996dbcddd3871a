"""IRHeader: golden bytes, and MXNet's own pack and unpack."""

from __future__ import annotations

import numpy as np
import pytest

from adapters.errors import ContentError
from adapters.records import irheader

GOLDEN = {
    "one label": (3.0, 7, "00000000 00004040 0700000000000000 0000000000000000"),
    "a list of one": ([3.0], 7, "01000000 00000000 0700000000000000 0000000000000000 00004040"),
    "two labels": (
        [1.0, -2.0],
        2**64 - 1,
        "02000000 00000000 ffffffffffffffff 0000000000000000 0000803f 000000c0",
    ),
}
golden = pytest.mark.parametrize(
    ("label", "number", "content"),
    [(label, number, bytes.fromhex(content)) for label, number, content in GOLDEN.values()],
    ids=list(GOLDEN),
)
labels = pytest.mark.parametrize("label", [0.5, [0.5], [1.0, 2.0, 3.0], np.arange(100.0)])


@golden
def test_a_header_is_written_as_these_bytes(label, number, content):
    assert irheader.pack(label, number, b"image") == content + b"image"


@golden
def test_a_header_is_read_from_these_bytes(label, number, content):
    found = irheader.unpack(memoryview(content + b"image"))
    assert (np.array(found.label).tolist(), found.id, bytes(found.content)) == (
        label,
        number,
        b"image",
    )


def test_one_label_is_a_float():
    assert type(irheader.unpack(memoryview(irheader.pack(1, 0, b""))).label) is float


def test_labels_are_an_array_of_float32():
    label = irheader.unpack(memoryview(irheader.pack([1], 0, b""))).label
    assert (label.dtype, label.shape) == (np.float32, (1,))


def test_the_image_is_not_copied():
    payload = memoryview(irheader.pack([1, 2], 0, b"image"))
    assert irheader.unpack(payload).content.obj is payload.obj


@labels
def test_mxnet_unpacks_what_we_pack(label, mx_recordio):
    header, content = mx_recordio.unpack(irheader.pack(label, 5, b"image"))
    assert np.array_equal(header.label, label)
    assert (header.id, content) == (5, b"image")


# MXNet is as old as that.
@pytest.mark.filterwarnings("ignore:tostring:DeprecationWarning")
@labels
def test_we_unpack_what_mxnet_packs(label, mx_recordio):
    header = mx_recordio.IRHeader(0, label, 5, 0)
    found = irheader.unpack(memoryview(mx_recordio.pack(header, b"image")))
    assert np.array_equal(found.label, label)
    assert (found.id, bytes(found.content)) == (5, b"image")


@pytest.mark.parametrize("label", [3.0, [1.0, 2.0]])
def test_a_payload_cut_anywhere_before_the_image_is_an_error(label):
    content = irheader.pack(label, 0, b"")
    for size in range(len(content)):
        with pytest.raises(ContentError, match=f"found {size} bytes"):
            irheader.unpack(memoryview(content[:size]))


def test_labels_that_no_memory_holds_are_an_error():
    content = irheader.HEADER.pack(2**32 - 1, 0.0, 0, 0)
    with pytest.raises(ContentError, match="4294967295 labels"):
        irheader.unpack(memoryview(content))
