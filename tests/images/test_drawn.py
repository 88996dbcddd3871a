"""Boxes that the kernel draws are Python's, and nothing that it is handed leads it astray."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from adapters import ImageDecoder
from adapters.errors import ContentError
from adapters.generators import DECODE, Generators, generator
from adapters.images import kernel, pixels
from tests.fuzzing import examples
from tests.images.pictures import encoded, picture
from tests.images.test_kernel import BASELINE, PHOTO, jpeg, pytestmark  # noqa: F401

CUTS = (None, "center", "random", "random_resized")
EPOCH = 3
sides = st.one_of(st.integers(1, 40), st.integers(1, 2_000), st.integers(1, 65_535))
positive = st.floats(1e-300, 1e300)


@st.composite
def decoders(draw: Any) -> ImageDecoder:
    crop = draw(st.sampled_from(CUTS))
    options: dict[str, Any] = {"flip": draw(st.booleans())}
    if crop in ("center", "random") and draw(st.booleans()):
        options["resize_short"] = draw(st.one_of(st.integers(1, 600), st.integers(1, 2**33)))
    if crop == "random_resized":
        usual = draw(st.booleans())
        number = st.floats(0.3, 3) if usual else positive
        area = st.floats(0.01, 1) if usual else st.floats(1e-300, 1)
        options["ratio"] = tuple(sorted((draw(number), draw(number))))
        options["area"] = tuple(sorted((draw(area), draw(area))))
    goal = draw(st.integers(1, 300)), draw(st.integers(1, 300))
    return ImageDecoder(goal, crop=crop, **options)


def asked_of(decoder: ImageDecoder) -> Any:
    cut = CUTS.index(decoder.crop)
    return kernel.settings_of(cut, decoder.resize_short, decoder.area, decoder.ratio, decoder.flip)


def by_python(decoder: ImageDecoder, size: tuple[int, int], number: int) -> bytes | None:
    """None where there is an error to raise, or another decoder is needed."""
    assert decoder.size is not None
    try:
        crop = decoder.crop_of(*size, generator(7, EPOCH, number, DECODE))
    except (ContentError, ArithmeticError, ValueError):
        return None
    numbers = kernel.numbers_of(crop, decoder.size)
    return None if numbers is None else np.array(numbers, np.int32).tobytes()


@given(decoders(), sides, sides, st.integers(0, 2**63 - 1))
@example(ImageDecoder(9, crop="random_resized", ratio=(1e300, 1e300)), 3, 4, 0)
@example(ImageDecoder(9, crop="random_resized", ratio=(1e-300, 1e-300)), 65_535, 4, 0)
@example(ImageDecoder(9, crop="center", resize_short=2**31 - 1), 1, 65_535, 0)
@settings(max_examples=examples(3_000))
def test_what_is_wanted_of_any_image_is_what_python_draws(decoder, height, width, number):
    assume(height * width <= pixels.MOST_PIXELS)
    assume((decoder.resize_short or 0) < 2**31)
    rng_of = Generators(7, EPOCH, DECODE, np.array([number]))
    found = kernel.load().crop(
        (height, width), rng_of.key, rng_of.counters[0], asked_of(decoder), decoder.size
    )
    assert found == by_python(decoder, (height, width), number)


@given(st.integers(0, 2**63), st.integers(0, 2**40), st.integers(0, 2**63 - 1))
def test_a_generators_counter_is_where_the_generator_begins(seed, epoch, number):
    rng_of = Generators(seed, epoch, DECODE, np.array([5, number]))
    bits = np.random.Philox(key=rng_of.key, counter=rng_of.counters[1])
    expected = generator(seed, epoch, number, DECODE).random(9)
    np.testing.assert_array_equal(np.random.Generator(bits).random(9), expected)
    np.testing.assert_array_equal(rng_of(1).random(9), expected)


CONTENTS = [
    jpeg(PHOTO, "444"),
    encoded(PHOTO, "PNG"),
    encoded(PHOTO, "JPEG", progressive=True),
    BASELINE,
    encoded(picture(20, 300), "JPEG"),
    encoded(picture(8, 9, 1), "JPEG"),
    encoded(PHOTO, "JPEG", "CMYK"),
    BASELINE[:-30],
    b"no image",
]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"crop": "center"},
        {"crop": "center", "resize_short": 40},
        {"crop": "random", "resize_short": 40, "flip": True},
        {"crop": "random_resized", "flip": True},
        {"crop": "random_resized", "dtype": "float32", "mean": 9.0, "layout": "NCHW"},
    ],
)
def test_a_batch_is_what_its_images_are_one_by_one(options):
    decoder = ImageDecoder((30, 40), **options)
    numbers = np.arange(len(CONTENTS)) + 100
    rng_of = Generators(1, 2, DECODE, numbers)
    rows = [5, 0, 8, 1, 2, 3, 7, 4, 6]
    out = np.zeros((9, *decoder.shape), decoder.dtype)
    failures = decoder.decode_rows(CONTENTS, rng_of, rows, out)
    assert sorted(place for place, _ in failures) == [7, 8]
    for place, row in list(enumerate(rows))[:7]:
        rng = generator(1, 2, int(numbers[place]), DECODE)
        np.testing.assert_array_equal(out[row], decoder.decode(CONTENTS[place], rng))


def test_all_of_them_are_drawn_by_the_kernel(monkeypatch):
    """What the others prove is proven of it, and not of what it leaves."""
    decoder = ImageDecoder((30, 40), crop="random_resized", flip=True)
    monkeypatch.setattr(ImageDecoder, "_by_python_crops", lambda *_: pytest.fail("left"))
    out = np.zeros((4, 30, 40, 3), np.uint8)
    rng_of = Generators(1, 2, DECODE, np.arange(4))
    assert decoder.decode_rows([BASELINE] * 4, rng_of, range(4), out) == []
    pieces = np.array([(1, 3, len(BASELINE))] * 4)
    buffers = [b"", b"abc" + BASELINE + b"d"]
    other = np.zeros_like(out)
    assert decoder.decode_pieces(buffers, pieces, rng_of, np.arange(4), other) == []
    np.testing.assert_array_equal(out, other)
    assert len({row.tobytes() for row in out}) == 4


def test_somebodys_own_generators_are_drawn_from():
    decoder = ImageDecoder((30, 40), crop="random_resized", flip=True)
    out = np.zeros((2, 30, 40, 3), np.uint8)
    rngs = [np.random.default_rng(n) for n in range(2)]
    assert decoder.decode_rows([BASELINE] * 2, rngs.__getitem__, [0, 1], out) == []
    for number, row in enumerate(out):
        expected = decoder.decode(BASELINE, np.random.default_rng(number))
        np.testing.assert_array_equal(row, expected)


class Upper(ImageDecoder):
    """Has a box of its own."""

    def crop_of(self, height: int, width: int, rng: Any) -> Any:
        return super().crop_of(height // 2, width, rng)._replace(image=(height, width))


def test_a_subclass_says_itself_what_is_wanted():
    out, plain = np.zeros((2, 1, 8, 8, 3), np.uint8)
    own, rows = Generators(0, 0, DECODE, np.arange(1)), np.arange(1)
    pieces = np.array([(0, 0, len(BASELINE))])
    for decoder, into in ((Upper(8, crop="center"), out), (ImageDecoder(8, crop="center"), plain)):
        assert decoder.decode_pieces([BASELINE], pieces, own, rows, into) == []
    np.testing.assert_array_equal(out[0], Upper(8, crop="center").decode(BASELINE))
    assert (out != plain).any()


@pytest.mark.parametrize("crop", ["random", "random_resized"])
def test_a_random_box_needs_generators(crop):
    out = np.zeros((1, 8, 8, 3), np.uint8)
    with pytest.raises(ValueError, match="rng_of must give generators"):
        ImageDecoder(8, crop=crop).decode_rows([BASELINE], None, [0], out)
    assert raw(key=None, counters=None, asked=(2, 0, 1, 1, 1, 1, 0, 0, False)) == b"\0"


# --- called wrongly ---

WHOLE = (0, 0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, False)


def raw(**other: Any) -> Any:
    module = kernel.load()
    arguments = {
        "buffers": [b"ab" + BASELINE],
        "pieces": np.array([(0, 2, len(BASELINE))]),
        "rows": np.array([0]),
        "asked": WHOLE,
        "key": np.zeros(2, np.uint64),
        "counters": np.zeros((1, 4), np.uint64),
        "out": np.zeros((1, 9, 9, 3), np.uint8),
        "shape": (1, 9, 9),
        "first": False,
        "table": None,
    }
    assert module is not None
    return module.decode(*{**arguments, **other}.values())


def test_what_is_asked_rightly_is_done():
    assert raw() == b"\1"
    assert raw(buffers=(b"ab" + BASELINE,)) == b"\1"
    assert raw(buffers=[BASELINE], pieces=None) == b"\1"


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("value", [-(2**63), -1, 1, 3, 1 << 20, 2**62, 2**63 - 1])
def test_no_piece_leads_out_of_the_buffers(place, value):
    piece = [0, 2, len(BASELINE)]
    piece[place] = value
    assert raw(pieces=np.array([piece])) == b"\0"


@pytest.mark.parametrize("row", [-(2**63), -1, 1, 2**31 - 1, 2**31, 2**32, 2**63 - 1])
def test_no_row_leads_out_of_the_batch(row):
    memory = np.full((3, 9, 9, 3), 77, np.uint8)
    assert raw(rows=np.array([row]), out=memory[1:2]) == b"\0"
    assert (memory == 77).all()


@pytest.mark.parametrize("buffer", [None, 3, memoryview(BASELINE)[::2]])
def test_what_is_no_buffer_is_left(buffer):
    assert raw(buffers=[buffer], pieces=None) == b"\0"


def test_more_images_than_buffers_are_left():
    outcomes = raw(
        buffers=[BASELINE],
        pieces=None,
        rows=np.zeros(3, np.int64),
        counters=np.zeros((3, 4), np.uint64),
    )
    assert outcomes == b"\1\0\0"


@pytest.mark.parametrize("place", range(9))
@pytest.mark.parametrize("value", [0, -1, 1, 2, 3, 7, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("cut", range(4))
def test_nothing_that_is_asked_leads_out_of_the_arrays(place, value, cut):
    memory = np.full((3, 9, 9, 3), 77, np.uint8)
    asked = [
        cut,
        5 * (cut in (1, 2)),
        0.08,
        1.0,
        0.75,
        4 / 3,
        math.log(0.75),
        math.log(4 / 3),
        True,
    ]
    asked[place] = value
    assert raw(asked=tuple(asked), out=memory[1:2]) in (b"\0", b"\1")
    assert (memory[0] == 77).all()
    assert (memory[2] == 77).all()


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e308, -1e308, 5e-324])
@pytest.mark.parametrize("place", range(2, 8))
def test_no_number_that_is_asked_leads_out_of_the_arrays(place, value):
    asked = [3, 0, 0.08, 1.0, 0.75, 4 / 3, math.log(0.75), math.log(4 / 3), True]
    asked[place] = value
    assert raw(asked=tuple(asked)) in (b"\0", b"\1")


@pytest.mark.parametrize(
    ("other", "error"),
    [
        ({"pieces": np.zeros((2, 3), np.int64)}, ValueError),
        ({"pieces": np.zeros((1, 3), np.int32)}, ValueError),
        ({"rows": np.zeros(1, np.int32)}, ValueError),
        ({"rows": None}, TypeError),
        ({"counters": np.zeros((1, 3), np.uint64)}, ValueError),
        ({"key": np.zeros(1, np.uint64)}, ValueError),
        ({"key": None}, TypeError),
        ({"asked": WHOLE[1:]}, TypeError),
        ({"asked": (0, 2**40, *WHOLE[2:])}, OverflowError),
        ({"out": np.zeros((1, 9, 8, 3), np.uint8)}, ValueError),
        ({"out": bytes(9 * 9 * 3)}, BufferError),
        ({"shape": (1, 0, 9)}, ValueError),
        ({"table": np.zeros(3, np.float32)}, ValueError),
        ({"buffers": None}, TypeError),
    ],
)
def test_wrong_arguments_are_refused(other, error):
    with pytest.raises(error):
        raw(**other)


@pytest.mark.parametrize("size", [(0, 5), (5, -1), (1 << 20, 1 << 20)])
def test_no_crop_is_made_for_what_is_no_image(size):
    with pytest.raises(ValueError, match="sizes must be"):
        kernel.load().crop(size, None, None, WHOLE, (9, 9))
