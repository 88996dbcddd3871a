"""tf.train.Examples as bytes, in the usual way and in any other, and files of them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import RecordError
from adapters.records import example
from tests.plans import batch_of, plan_of
from tests.sources.record_files import write


def varint(value: int) -> bytes:
    """An integer, negative ones as 2^64 - n."""
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(number: int, content: bytes) -> bytes:
    """Tag, length, content."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def listed(values: Any, packed: bool = True) -> bytes:
    """A ``Feature`` of bytes, floats or integers."""
    if not values:
        return b""
    if isinstance(values[0], bytes):
        return message(example.BYTES_LIST, b"".join(message(1, value) for value in values))
    if isinstance(values[0], float):
        parts = [struct.pack("<f", value) for value in values]
        content = message(1, b"".join(parts))
        if not packed:
            content = b"".join(b"\x0d" + part for part in parts)
        return message(example.FLOAT_LIST, content)
    parts = [varint(value) for value in values]
    content = message(1, b"".join(parts)) if packed else b"".join(b"\x08" + part for part in parts)
    return message(example.INT64_LIST, content)


def entry(name: str, feature: bytes, value_first: bool = False) -> bytes:
    """One entry of ``Features``."""
    parts = [message(1, name.encode()), message(2, feature)]
    return message(1, b"".join(reversed(parts) if value_first else parts))


def assembled(entries: Iterable[bytes]) -> bytes:
    """An Example of these entries."""
    return message(1, b"".join(entries))


def encoded(features: Mapping[str, Any], packed: bool = True) -> bytes:
    """An Example of these features, in this order."""
    return assembled(entry(name, listed(values, packed)) for name, values in features.items())


def sample(number: int) -> dict[str, Any]:
    """Features of one size each, but for their varints; all different."""
    rng = np.random.default_rng(number)
    return {
        "image": [rng.integers(0, 256, 24, dtype=np.uint8).tobytes()],
        "label": [int(rng.integers(0, 300))],
        "weight": [float(np.float32(rng.random()))],
        "marks": rng.integers(-2, 70_000, 3).tolist(),
    }


def file_of(folder: Path, payloads: Iterable[bytes], name: str = "a.tfrecord") -> Path:
    """A TFRecord of these Examples."""
    return write(folder / name, "tfrecord", payloads)


def outcome(source: Any, number: int) -> dict[str, Any] | str:
    """A sample, or what is wrong with its record."""
    try:
        return source[number]
    except RecordError as error:
        return str(error)


def assert_batch_is_its_outcomes(source: Any, size: int, index: int = 0) -> None:
    """A batch is what its samples are one by one, or the first error of these."""
    plan = plan_of(source, size)
    expected: Any = [outcome(source, number) for number in plan.order.batch(0, index).tolist()]
    if errors := [each for each in expected if isinstance(each, str)]:
        with pytest.raises(RecordError) as raised:
            batch_of(plan, 0, index)
        assert str(raised.value) == errors[0]
        return
    for name, values in batch_of(plan, 0, index).items():
        np.testing.assert_array_equal(values, [sample[name] for sample in expected])
