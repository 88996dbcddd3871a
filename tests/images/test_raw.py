"""Raw images through ``ImageDecoder``, with and without the kernel: truncated and damaged ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adapters import ImageDecoder
from adapters.errors import ContentError
from adapters.generators import DECODE, generator
from adapters.images import decode
from tests.images.pictures import encoded, npy


def noise(height: int, width: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1)])
def test_a_grey_image_comes_in_three_equal_channels(shape):
    grey = noise(5, 7)[:, :, 0].reshape(shape)
    rgb = ImageDecoder((5, 7)).decode(npy(grey))
    np.testing.assert_array_equal(rgb, np.broadcast_to(grey.reshape(5, 7, 1), (5, 7, 3)))


def test_an_image_truncated_anywhere_is_refused():
    content = npy(noise(3, 5))
    for length in range(len(content)):
        for read in (decode, ImageDecoder(4).decode):
            with pytest.raises(ContentError):
                read(content[:length])


def test_a_header_that_is_too_long_to_parse_is_refused():
    """Python's parser would run out of memory for this one."""
    header = b"-" * 60_000
    content = b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header
    with pytest.raises(ContentError, match="a header of at most 10,000 bytes"):
        decode(content)


def mutants(contents: list[bytes], count: int) -> Any:
    """Bytes changed, most of them in the header; cut short, or longer."""
    rng = np.random.default_rng(5)
    for number in range(count):
        content = bytearray(contents[number % len(contents)])
        for _ in range(rng.integers(0, 4)):
            at = int(rng.integers(0, min(len(content), 160 if rng.random() < 0.5 else 20)))
            content[at] = int(rng.choice([0, 1, 255, 128, rng.integers(256)]))
        if rng.random() < 0.2:
            del content[int(rng.integers(0, len(content))) :]
        if rng.random() < 0.1:
            content += bytes(int(rng.integers(1, 90)))
        yield bytes(content)


def test_mutants_give_pixels_or_a_content_error():
    """In batches of nine, with and without random boxes; with the kernel where it is built."""
    contents = [npy(noise(9, 12)), npy(noise(9, 12)[:, :, 0]), encoded(noise(9, 12), "PNG")]
    batch: list[bytes] = []
    outcomes = {True: 0, False: 0}
    for content in mutants(contents, 4500):
        batch.append(content)
        if len(batch) < 9:
            continue
        for decoder in (ImageDecoder(8, crop="random_resized", flip=True), ImageDecoder(7)):
            out = np.zeros((9, *(decoder.shape or ())), np.uint8)
            failures = decoder.decode_rows(
                batch, lambda place: generator(0, 0, place, DECODE), range(9), out
            )
            assert all(isinstance(error, ContentError) for _, error in failures), failures
            outcomes[True] += 9 - len(failures)
            outcomes[False] += len(failures)
        batch.clear()
    assert min(outcomes.values()) > 1000
