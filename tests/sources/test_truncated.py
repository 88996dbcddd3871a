"""Record files that somebody truncates, replaces or removes while they are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from adapters import Feature, ImageDecoder, RecordError, RecordWriter, open_records
from adapters.images import kernel
from adapters.records.example import encode
from tests.plans import batch_of, plan_of

COUNT, BATCH_SIZE = 200, 4
DECODERS: dict[str, Any] = {
    "numbers": {"x": Feature("float32", (2,))},
    "images": {"image": ImageDecoder(16), "x": Feature("float32", (2,))},
    "bytes": None,
}


def written(path: Path) -> Path:
    """Write records of noise as JPEGs, 4 KB each, with two numbers."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    image = cv2.imencode(".jpg", pixels)[1].tobytes()
    with RecordWriter(str(path), format="tfrecord") as writer:
        for number in range(COUNT):
            writer.write(encode({"image": [image], "x": [number / 2, 1.0]}))
    return path


@pytest.fixture(params=DECODERS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A source that has been read from."""
    source = open_records(str(written(tmp_path / "it.tfrecord")), decode=DECODERS[request.param])
    read(source, 0)
    yield source
    source.close()


def read(source: Any, index: int) -> Any:
    """Read a batch, and its first sample by itself."""
    if isinstance(source[0], bytes):
        return [source[number] for number in range(index * BATCH_SIZE, (index + 1) * BATCH_SIZE)]
    batch = batch_of(plan_of(source, BATCH_SIZE), index=index)
    first = source[index * BATCH_SIZE]
    for name, values in batch.items():
        np.testing.assert_array_equal(values[0], first[name])
    return batch


def test_truncated_file_is_an_error(source: Any, tmp_path: Path) -> None:
    """It isn't the end of the process, which a map of the file would be."""
    os.truncate(tmp_path / "it.tfrecord", 4096)
    for take in (lambda: read(source, 40), lambda: source[190]):
        with pytest.raises(RecordError, match=r"it\.tfrecord.*changed since, of 4096 bytes"):
            take()


@pytest.mark.parametrize("act", ["replace", "remove"])
def test_file_with_another_name_is_read_on(source: Any, tmp_path: Path, act: str) -> None:
    """Another file under its name isn't read."""
    before = read(source, 40)
    if act == "replace":
        (tmp_path / "other").write_bytes(b"short")
        os.replace(tmp_path / "other", tmp_path / "it.tfrecord")
    else:
        os.unlink(tmp_path / "it.tfrecord")
    after = read(source, 40)
    np.testing.assert_equal(after, before)


def test_batch_whose_images_are_truncated_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images aren't decoded from a map of the file."""
    path = written(tmp_path / "it.tfrecord")
    with open_records(str(path), decode=DECODERS["images"]) as source:
        expected = read(source, 40)
        decode = ImageDecoder.decode_rows

        def truncating(*arguments: Any, **options: Any) -> Any:
            os.truncate(path, 4096)
            return decode(*arguments, **options)

        monkeypatch.setattr(ImageDecoder, "decode_rows", truncating)
        if kernel.load() is None:  # All records of the batch were read before.
            np.testing.assert_equal(batch_of(plan_of(source, BATCH_SIZE), index=40), expected)
            return
        with pytest.raises(RecordError, match=r"it\.tfrecord.*changed since, of 4096 bytes"):
            batch_of(plan_of(source, BATCH_SIZE), index=40)
