"""Small record files of images and labels, damage to them, and what batches of them must be."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from adapters import Feature, RecordWriter
from adapters.generators import DECODE, generator
from adapters.records import example, irheader
from tests.images.pictures import encoded, npy, picture
from tests.plans import epoch_of, plan_of

FORMATS = ("recordio", "tfrecord")
SUFFIXES = {"recordio": ".rec", "tfrecord": ".tfrecord"}
SIZE = 11
HEADERS = {"image": Feature("uint8", (24,), stored="raw"), "label": Feature("float32")}


def write(path: Path, format: str, payloads: Iterable[bytes]) -> Path:
    """A record file of these payloads."""
    with RecordWriter(path, format=format) as writer:
        for payload in payloads:
            writer.write(payload)
    return path


def payload(format: str, content: bytes, label: Any, number: int = 0) -> bytes:
    """An encoded image and its label, as that format has them."""
    if format == "recordio":
        return irheader.pack(label, number, content)
    return example.encode({"image/encoded": content, "image/class/label": label})


def write_images(
    path: Path, format: str, contents: Iterable[bytes], labels: Iterable[Any] | None = None
) -> Path:
    """Encoded images, with these labels, or their numbers."""
    contents = list(contents)
    given = range(len(contents)) if labels is None else labels
    return write(
        path,
        format,
        (
            payload(format, content, label, n)
            for n, (content, label) in enumerate(zip(contents, given))
        ),
    )


def raw(count: int = SIZE, shape: tuple[int, ...] = (4, 5, 3), dtype: str = "u1") -> list[Any]:
    """Arrays, all different."""
    rng = np.random.default_rng(7)
    return [rng.integers(0, 256, shape).astype(dtype) for _ in range(count)]


def raw_file(folder: Path, format: str, arrays: Any = None, labels: Any = None) -> Path:
    """Arrays in NPY's format."""
    contents = map(npy, raw() if arrays is None else arrays)
    return write_images(folder / f"raw{SUFFIXES[format]}", format, contents, labels)


def jpeg_file(folder: Path, format: str, count: int = SIZE) -> Path:
    """JPEGs of several sizes."""
    contents = [encoded(picture(20 + n, 50 - n), "JPEG") for n in range(count)]
    return write_images(folder / f"jpeg{SUFFIXES[format]}", format, contents)


def damage(path: Path, place: int, mask: int = 255) -> None:
    """Flip bits of a byte; the file's time stays, as its index is still right."""
    content = bytearray(path.read_bytes())
    content[place] ^= mask
    path.write_bytes(content)


def shards(folder: Path, format: str, counts: tuple[int, ...] = (5, 1, 0, 30, 9)) -> list[Path]:
    """Files of so many records of 24 bytes and a label, which are numbered through."""
    ends = np.cumsum(counts).tolist()
    return [
        write(
            folder / f"{place}.{format}",
            format,
            (
                irheader.pack(n, n, bytes([n] * 24))
                if format == "recordio"
                else example.encode({"image": bytes([n] * 24), "label": float(n)})
                for n in range(end - count, end)
            ),
        )
        for place, (count, end) in enumerate(zip(counts, ends))
    ]


def assert_batches_are_samples(source: Any, size: int = 16, epochs: int = 2) -> None:
    """Each row of a shuffled batch is what the source gives by itself, by the same draws."""
    plan = plan_of(source, size, shuffle=True, seed=5)
    for epoch in range(epochs):
        for index, batch in enumerate(epoch_of(plan, epoch)):
            numbers = plan.order.batch(epoch, index).tolist()
            samples = [source.sample(n, generator(5, epoch, n, DECODE)) for n in numbers]
            names = list(batch) if isinstance(batch, dict) else range(len(batch))
            for name in names:
                expected = np.array([sample[name] for sample in samples])
                np.testing.assert_array_equal(batch[name], expected, strict=True)
