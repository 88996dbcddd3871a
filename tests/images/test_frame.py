"""Pictures that are decoded without libjpeg, against libjpeg."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from adapters.images import kernel
from tests.images.pictures import encoded, picture

pytestmark = pytest.mark.skipif(
    kernel.load() is None or not kernel.load().HUFFMAN_IS_OWN,
    reason="the kernel isn't built, switched off, or leaves all of it to libjpeg",
)
QUALITIES = (5, 50, 90, 98, 100)


@pytest.fixture(autouse=True)
def own_again() -> Any:
    yield
    kernel.load().use_own_huffman(True)


def both(content: bytes, size: tuple[int, int], box: tuple[int, ...], goal: tuple[int, int]) -> Any:
    """The box (top, left, height, width), resized to the goal: our rows, and libjpeg's."""
    top, left, height, width = box
    vertical, horizontal = (top, height, goal[0], 0), (left, width, goal[1], 0)
    numbers = np.array([(0, *size, 1, *vertical, *horizontal, 0)], np.int32)
    found = []
    for own in (True, False):
        kernel.load().use_own_huffman(own)
        out = np.full((1, *goal, 3), 77, np.uint8)
        row = np.zeros(1, np.int64)
        given = [content], None, row, numbers, None, None, out, (1, *goal), False, None
        outcome = kernel.load().decode(*given)
        found.append((outcome, out[0]))
    return found


def same(
    content: bytes, size: tuple[int, int], box: tuple[int, ...], goal: tuple[int, int]
) -> bool:
    (ours, own), (theirs, libjpegs) = both(content, size, box, goal)
    return ours == theirs == b"\x01" and bool((own == libjpegs).all())


def with_steps(content: bytes, step: int) -> bytes:
    """With each number of its quantization tables another one."""
    changed = bytearray(content)
    at = changed.find(b"\xff\xdb")
    while at >= 0:
        size = int.from_bytes(changed[at + 2 : at + 4], "big")
        for table in range(at + 4, at + 2 + size, 65):
            changed[table + 1 : table + 65] = bytes([step]) * 64
        at = changed.find(b"\xff\xdb", at + size)
    return bytes(changed)


@pytest.mark.parametrize("quality", QUALITIES)
def test_whole_pictures_of_any_size_are_libjpegs_to_the_bit(quality):
    for height, width in [(1, 1), (2, 5), (5, 4), (7, 6), (16, 16), (17, 33), (31, 64), (95, 130)]:
        content = encoded(picture(height, width), "JPEG", quality=quality)
        box, size = (0, 0, height, width), (height, width)
        assert same(content, size, box, size), size


def test_any_box_of_any_picture_is_libjpegs_to_the_bit():
    random = np.random.default_rng(7)
    for _ in range(400):
        height, width = (int(side) for side in random.integers(1, 150, 2))
        photo = random.integers(0, 256, (height, width, 3)).astype(np.uint8)
        photo = photo if random.random() < 0.3 else picture(height, width)
        content = encoded(photo, "JPEG", quality=int(random.choice(QUALITIES)))
        top, left = int(random.integers(height)), int(random.integers(width))
        box = top, left, *(int(random.integers(1, s + 1)) for s in (height - top, width - left))
        goal = (int(random.integers(1, 90)), int(random.integers(1, 90)))
        for wanted in (goal, box[2:]):
            assert same(content, (height, width), box, wanted), (height, width, box, wanted)


@pytest.mark.parametrize("step", [40, 255])
def test_numbers_that_no_encoder_writes_wrap_and_saturate_as_libjpegs_vectors_do(step):
    random = np.random.default_rng(3)
    for quality in QUALITIES:
        photo = (random.integers(0, 2, (70, 90, 3)) * 255).astype(np.uint8)
        for image in (photo, np.repeat(np.repeat(photo[::16, ::16], 16, 0), 16, 1)):
            content = with_steps(encoded(image, "JPEG", quality=quality), step)
            size = image.shape[:2]
            assert same(content, size, (0, 0, *size), size)


@pytest.mark.parametrize("luma", [0, 60, 128, 200, 255])
def test_colours_are_libjpegs_to_the_bit(luma):
    blue, red = np.meshgrid(*2 * [np.repeat(np.arange(256), 2)])
    planes = np.stack([np.full_like(blue, luma), blue, red], 2).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(planes, "YCbCr").save(buffer, "JPEG", quality=100, subsampling=2)
    assert same(buffer.getvalue(), (512, 512), (0, 0, 512, 512), (512, 512))


def test_what_lies_before_the_end_is_damage_unless_it_is_filling():
    content = encoded(picture(60, 80), "JPEG")
    size = (60, 80)
    box = (0, 0, *size)
    assert same(content[:-2] + b"\xff" * 5 + content[-2:], size, box, size)
    for more in (b"\x00", b"\x12\x34", b"\xff\xc4\x00\x02", b"\xff\xd0"):
        (ours, _), _ = both(content[:-2] + more + content[-2:], size, box, size)
        assert ours == b"\x00"
