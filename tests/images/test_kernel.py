"""The compiled kernel against what works without it."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
from typing import Any

import cv2
import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import ImageDecoder
from adapters.generators import DECODE, generator
from adapters.images import kernel, pixels
from adapters.images.geometry import Crop, whole
from tests.images.pictures import encoded, picture

pytestmark = pytest.mark.skipif(
    kernel.load() is None, reason="the kernel isn't built, or switched off"
)
SAMPLINGS = {
    name: getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{name}")
    for name in ("411", "420", "422", "440", "444")
}
PHOTO = picture(75, 103)
BASELINE = encoded(PHOTO, "JPEG")


def jpeg(image: Any, sampling: str = "420", quality: int = 90) -> bytes:
    flags = [cv2.IMWRITE_JPEG_QUALITY, quality]
    flags += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS[sampling]]
    content: bytes = cv2.imencode(".jpg", image, flags)[1].tobytes()
    return content


def by_kernel(content: bytes, crop: Crop, height: int, width: int) -> Any:
    """The row; None where the kernel left it undone."""
    out = np.full((1, height, width, 3), 77, np.uint8)
    left = kernel.decode_rows([content], [crop], [0], out, False, None)
    return None if left else out[0]


def by_pixels(content: bytes, crop: Crop, height: int, width: int) -> Any:
    row = np.empty((height, width, 3), np.uint8)
    pixels.decode_into(content, crop, row)
    return row


@st.composite
def works(draw: Any) -> tuple[bytes, Crop, tuple[int, int]]:
    height, width = draw(st.integers(1, 90)), draw(st.integers(1, 90))
    goal = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    flip = draw(st.booleans())
    if draw(st.booleans()):
        spare = draw(st.integers(0, 30)), draw(st.integers(0, 30))
        place = draw(st.integers(0, spare[0])), draw(st.integers(0, spare[1]))
        resized = goal[0] + spare[0], goal[1] + spare[1]
        crop = Crop((height, width), resized, *place, *goal, flip)
    else:
        top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
        box = draw(st.integers(1, height - top)), draw(st.integers(1, width - left))
        crop = Crop((height, width), None, top, left, *box, flip)
    seed, sampling = draw(st.integers(0, 99)), draw(st.sampled_from(sorted(SAMPLINGS)))
    # Noise is what shows every wrong neighbour.
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return jpeg(noise, sampling, draw(st.integers(5, 100))), crop, goal


@given(works())
@settings(deadline=None, max_examples=600)
def test_any_box_differs_by_1_at_most_from_all_of_it_decoded(work):
    """Of 256: what OpenCV's resizing may round otherwise. Boxes at any border of MCUs."""
    content, crop, goal = work
    row = by_kernel(content, crop, *goal)
    assert row is not None
    assert np.abs(row.astype(int) - by_pixels(content, crop, *goal)).max() <= 1


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_hardly_a_pixel_of_a_photograph_differs(sampling):
    """0.01 of 256 on average."""
    decoder, differences = ImageDecoder(40, crop="random_resized"), []
    content = jpeg(PHOTO, sampling)
    for number in range(100):
        crop = decoder.crop_of(75, 103, generator(0, 0, number, DECODE))
        row = by_kernel(content, crop, 40, 40)
        differences.append(np.abs(row.astype(int) - by_pixels(content, crop, 40, 40)).mean())
    assert np.mean(differences) < 0.01


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_box_that_is_not_resized_is_what_all_of_it_decoded_has(sampling):
    content = jpeg(PHOTO, sampling)
    image = pixels.decode(content)
    for top in range(0, 60, 7):
        for left in range(0, 80, 5):
            row = by_kernel(content, Crop((75, 103), None, top, left, 15, 23, False), 15, 23)
            np.testing.assert_array_equal(row, image[top : top + 15, left : left + 23])


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_a_reduced_image_is_simplejpegs(factor):
    content = encoded(picture(160, 240), "JPEG")
    goal = 160 // factor, 240 // factor
    np.testing.assert_array_equal(
        by_kernel(content, whole(160, 240), *goal), pixels._jpeg(content, factor)
    )


def test_a_grey_image_gets_three_channels():
    content = encoded(picture(37, 53, 1), "JPEG")
    row = by_kernel(content, whole(37, 53, True), 37, 53)
    np.testing.assert_array_equal(row, pixels.decode(content)[:, ::-1])


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(
    "more", [{}, {"dtype": "float32"}, {"dtype": "float32", "mean": (1, 2, 3), "std": (4, 5, 6.5)}]
)
def test_every_layout_and_dtype_has_the_values_of_the_other_way(layout, more, monkeypatch):
    decoder = ImageDecoder(
        (20, 31), crop="center", resize_short=33, flip=True, layout=layout, **more
    )
    rows = [decoder.decode(BASELINE, generator(0, 0, i, DECODE)) for i in range(4)]
    monkeypatch.setattr(kernel, "load", lambda: None)
    for number, row in enumerate(rows):
        other = decoder.decode(BASELINE, generator(0, 0, number, DECODE))
        np.testing.assert_array_equal(row, other)


# --- what it leaves to others ---


@pytest.mark.parametrize(
    "content",
    {
        "progressive": encoded(PHOTO, "JPEG", progressive=True),
        "CMYK": encoded(PHOTO, "JPEG", "CMYK"),
        "PNG": encoded(PHOTO, "PNG"),
        "bytes behind it": BASELINE + b"\0",
        "nothing": b"",
        "two markers": b"\xff\xd8\xff\xd9",
    }.values(),
)
def test_what_is_no_whole_baseline_jpeg_is_left(content):
    assert by_kernel(content, whole(75, 103), 9, 9) is None


def test_a_jpeg_cut_anywhere_is_left():
    """Also where all rows that are wanted are there."""
    crop = Crop((75, 103), None, 0, 0, 5, 5, False)
    assert by_kernel(BASELINE, crop, 5, 5) is not None
    for size in range(len(BASELINE)):
        assert by_kernel(BASELINE[:size], crop, 5, 5) is None
    # The last bytes of the data may be but filling.
    for size in range(len(BASELINE) - 10):
        assert by_kernel(BASELINE[:size] + b"\xff\xd9", whole(75, 103), 5, 5) is None


def test_a_jpeg_of_another_size_than_the_box_was_made_for_is_left():
    assert by_kernel(BASELINE, whole(75, 102), 9, 9) is None


def test_damage_where_pixels_are_used_is_left():
    content = bytearray(BASELINE)
    content[len(content) // 2 : len(content) // 2 + 40] = b"\xff" * 40
    assert by_kernel(bytes(content), whole(75, 103), 9, 9) is None


def test_what_it_leaves_is_decoded_all_the_same():
    contents = [BASELINE, encoded(PHOTO, "PNG"), b"no image", encoded(PHOTO, "JPEG", "CMYK")]
    out = np.zeros((5, 20, 30, 3), np.uint8)
    decoder = ImageDecoder((20, 30))
    failures = decoder.decode_rows(contents, lambda place: None, [4, 1, 2, 0], out)
    assert [place for place, _ in failures] == [2]
    for content, row in zip(contents[:2] + contents[3:], (4, 1, 0)):
        np.testing.assert_array_equal(out[row], decoder.decode(content))
    assert not out[2:4].any()


def test_a_row_that_is_not_contiguous_is_written_all_the_same():
    out = np.zeros((40, 30, 3), np.uint8)
    ImageDecoder((20, 30)).decode(BASELINE, out=out[::2])
    np.testing.assert_array_equal(out[::2], ImageDecoder((20, 30)).decode(BASELINE))
    assert not out[1::2].any()


# --- what no caller of ours does ---

NUMBERS = (0, 75, 103, 1, 0, 75, 9, 0, 0, 103, 9, 0, 0)


def raw(numbers: Any, rows: int = 1, **other: Any) -> Any:
    module = kernel.load()
    assert module is not None
    arguments = {
        "jpegs": [BASELINE],
        "crops": np.array([numbers], np.int32),
        "out": np.zeros((rows, 9, 9, 3), np.uint8),
        "shape": (rows, 9, 9),
        "first": False,
        "table": None,
    }
    return module.decode(*{**arguments, **other}.values())


def test_a_crop_has_as_many_numbers_as_the_kernel_takes():
    assert raw(NUMBERS) == b"\1"
    assert len(NUMBERS) == kernel.load().CROP_NUMBERS
    assert pixels.MOST_PIXELS == kernel.load().MOST_PIXELS


@pytest.mark.parametrize("place", range(13))
@pytest.mark.parametrize("value", [-(2**31), -1, 0, 3, 9, 104, 2**31 - 1])
def test_no_number_of_a_crop_leads_out_of_the_arrays(place, value):
    numbers = [*NUMBERS]
    numbers[place] = value
    assert raw(numbers) in (b"\0", b"\1")


@pytest.mark.parametrize(
    ("other", "error"),
    [
        ({"crops": np.zeros((2, 13), np.int32)}, ValueError),
        ({"crops": np.zeros((1, 12), np.int32)}, ValueError),
        ({"out": np.zeros((1, 9, 8, 3), np.uint8)}, ValueError),
        ({"out": bytes(9 * 9 * 3)}, BufferError),
        ({"out": np.zeros((9, 9, 3, 2), np.uint8)[..., 0]}, ValueError),
        ({"shape": (2, 9, 9)}, ValueError),
        ({"shape": (1, 0, 9)}, ValueError),
        ({"shape": (-1, 9, 9)}, ValueError),
        ({"shape": (2**31 - 1, 2**31 - 1, 2**31 - 1)}, ValueError),
        ({"table": np.zeros(3, np.float32)}, ValueError),
        ({"jpegs": (BASELINE,)}, TypeError),
        ({"jpegs": [None]}, TypeError),
    ],
)
def test_wrong_arguments_are_refused(other, error):
    with pytest.raises(error):
        raw(NUMBERS, **other)


# --- threads, memory, processes ---


def test_many_threads_decode_at_once():
    crops = [whole(75, 103, bool(number % 2)) for number in range(8)]
    expected = [by_kernel(BASELINE, crop, 30, 40) for crop in crops]

    def work(_: int) -> Any:
        out = np.zeros((8, 30, 40, 3), np.uint8)
        assert not kernel.decode_rows([BASELINE] * 8, crops, range(8), out, False, None)
        return out

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for out in pool.map(work, range(200)):
            np.testing.assert_array_equal(out, expected)


def test_a_million_images_leave_nothing_in_memory():
    """Whole ones, damaged ones, and lists of which one member is no buffer."""
    content = encoded(picture(8, 8), "JPEG")
    damaged = content[:-20] + b"\xff\xd9"
    crop, out = whole(8, 8), np.zeros((1, 8, 8, 3), np.uint8)
    buffers = [content, damaged] * 500
    process = psutil.Process()

    def work() -> None:
        left = kernel.decode_rows(buffers, [crop] * 1000, [0] * 1000, out, False, None)
        assert left == list(range(1, 1000, 2))
        with pytest.raises(TypeError):
            raw(NUMBERS, jpegs=[content, None], crops=np.zeros((2, 13), np.int32))

    for _ in range(20):
        work()
    before = process.memory_info().rss
    for _ in range(1000):
        work()
    assert process.memory_info().rss - before < 8 << 20


SCRIPT = """
import os, sys, threading
import numpy as np
from adapters.images import kernel
from adapters.images.geometry import whole

content = open(sys.argv[1], "rb").read()
expected = np.zeros((1, 30, 40, 3), np.uint8)
kernel.decode_rows([content], [whole(75, 103)], [0], expected, False, None)

def work(times):
    for _ in range(times):
        out = np.zeros((9, 30, 40, 3), np.uint8)
        left = kernel.decode_rows([content] * 9, [whole(75, 103)] * 9, range(9), out, False, None)
        assert not left and (out == expected).all()

for _ in range(3):
    threading.Thread(target=work, args=(10**9,), daemon=True).start()
for _ in range(20):
    if (child := os.fork()) == 0:
        work(5)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print("done")
"""


def test_forks_and_the_interpreters_end_find_threads_at_work(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(BASELINE)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, path],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_the_environment_switches_it_off():
    code = "from adapters.images import kernel; print(kernel.load())"
    environment = {**os.environ, "ADAPTERS_KERNEL": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert done.stdout == b"None\n"
