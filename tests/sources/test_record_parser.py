"""The kernel's parser takes what Python's takes, with the same values, and no damaged record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import RecordError
from adapters.errors import ContentError
from adapters.images import kernel
from adapters.records import CODECS, example
from adapters.records.envelope import IMAGE, LABEL
from adapters.sources import recordrows
from tests.fuzzing import examples
from tests.images.pictures import encoded, picture
from tests.sources.record_files import FORMATS

every_format = pytest.mark.parametrize("format", FORMATS)
pytestmark = pytest.mark.skipif(
    kernel.load() is None, reason="the kernel isn't built, or switched off"
)
NAMES = IMAGE, LABEL
CONTENT = encoded(picture(9, 11), "JPEG")


class Memory:
    """A storage of these bytes."""

    def __init__(self, content: bytes) -> None:
        self.name, self.size, self._content = "memory", len(content), memoryview(content)

    def read(self, offset: int, size: int) -> memoryview:
        return self._content[offset : offset + size]


def field(name: str, kind: int, part: int, is_place: bool = False) -> tuple[Any, ...]:
    return name.encode(), kind, part, is_place, 1, b"", None


def looked(content: bytes, offset: int, size: int, format: str, verify: bool) -> Any:
    """(kind, image, label), by the kernel; None where it doesn't take the record."""
    module: Any = kernel.load()
    sizes = np.array([size]) if size else None
    kind = CODECS[format].kernel_kind
    files = module.files(
        [(memoryview(content), np.array([offset]), sizes, np.array([not verify]), kind, b"", 0)]
    )
    image = field(IMAGE, example.BYTES_LIST, recordrows._CONTENT, is_place=True)
    place, one = np.zeros((1, 3), np.int64), np.zeros(1, np.int64)
    for list_, dtype in ((example.INT64_LIST, np.int64), (example.FLOAT_LIST, np.float32)):
        label = np.zeros(1, dtype)
        schema = module.schema([image, field(LABEL, list_, recordrows._OWN_LABEL)])
        if module.gather(schema, files, one, None, (place, label)) is None:
            _, begin, bytes_ = place[0].tolist()
            value = label[0].item()
            return type(value), content[begin : begin + bytes_], repr(value)
    return None


def read(content: bytes, offset: int, size: int, format: str, verify: bool) -> Any:
    """The same, as records are read; None where there is an error, or another kind of label."""
    codec, storage = CODECS[format], Memory(content)
    try:
        payload = codec.read(storage, offset, 0, verify, size or None)
        image, label = codec.envelope.split(payload, NAMES)
    except (ContentError, RecordError):
        return None
    plain = isinstance(label, (int, float)) and len(image)
    return (type(label), bytes(image), repr(label)) if plain else None


labels = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32),
    st.lists(st.integers(0, 9), max_size=3),
    st.lists(st.floats(width=32), max_size=3),
    st.binary(max_size=9),
)


@st.composite
def records(draw: Any) -> tuple[bytes, int, int, str, bool]:
    format = draw(st.sampled_from(FORMATS))
    image = draw(st.one_of(st.just(CONTENT), st.binary(max_size=20)))
    if format == "tfrecord":
        features = {IMAGE: image, LABEL: draw(labels)}
        features |= draw(st.dictionaries(st.text(max_size=140), labels, max_size=3))
        features = {name: value for name, value in features.items() if value != []}
        payload = example.encode(features)
    else:
        label = draw(st.one_of(st.floats(width=32), st.lists(st.floats(width=32), max_size=2)))
        payload = CODECS[format].envelope.pack(image, label or 0.0, draw(st.integers(0, 2**64 - 1)))
    payload = bytearray(payload)
    if draw(st.booleans()):
        for _ in range(draw(st.integers(0, 3))):
            payload[draw(st.integers(0, len(payload) - 1))] = draw(st.integers(0, 255))
    one = CODECS[format].encode(bytes(payload))
    before = CODECS[format].encode(b"x" * 4 * draw(st.integers(0, 3)))
    content = bytearray(before + one + draw(st.sampled_from([b"", one, b"x", b"x" * 50])))
    if draw(st.booleans()):
        content[draw(st.integers(0, len(content) - 1))] ^= 1 << draw(st.integers(0, 7))
    content = content[: draw(st.sampled_from([len(content), len(content) - 1, len(before)]))]
    size = draw(st.sampled_from([0, len(one), len(one) + 1]))
    offset = draw(st.sampled_from([len(before)] * 5 + [1, len(content), len(content) + 9]))
    return bytes(content), offset, size, format, draw(st.booleans())


@given(records())
@settings(max_examples=examples(1_000))
def test_kernel_takes_what_python_takes(record):
    found = looked(*record)
    # Of RecordIO's records in parts, nothing is taken.
    assert found == read(*record) or (record[3] == "recordio" and found is None)


@pytest.mark.parametrize("offset", [-1, 2**62, 2**63 - 1, -(2**63), len(CONTENT), len(CONTENT) - 1])
@pytest.mark.parametrize("size", [None, -1, 0, 1, 2**63 - 1])
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_no_offset_leads_out_of_the_file(offset, size, kind):
    sizes = None if size is None else np.array([size, size])
    module: Any = kernel.load()
    for checked in (True, False):
        file = CONTENT, np.array([0, offset]), sizes, np.full(2, checked), kind, b"", 0
        opened = module.files([file])
        schema = module.schema([field("a", example.INT64_LIST, 0)])
        numbers, column = np.array([1]), np.zeros(1, np.int64)
        assert module.gather(schema, opened, numbers, None, (column,)) == b"\1"
