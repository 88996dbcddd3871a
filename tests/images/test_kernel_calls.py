"""The kernel draws Python's boxes, and bears wrong calls, threads, forks and a million images."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters import ImageDecoder
from adapters.errors import ContentError
from adapters.generators import DECODE, Generators, generator
from adapters.images import kernel, opencv
from adapters.images.kernel import Target
from adapters.records import CODECS, irheader, tfrecord
from adapters.records import example as example_codec
from adapters.records.envelope import IMAGE, LABEL
from adapters.sources import recordrows
from tests.fuzzing import examples
from tests.images.pictures import encoded, npy, picture
from tests.images.test_kernel import BASELINE, PHOTO, jpeg

pytestmark = pytest.mark.skipif(
    kernel.load() is None, reason="the kernel isn't built, or switched off"
)
CUTS = (None, "center", "random", "random_resized")
EPOCH = 3
sides = st.one_of(st.integers(1, 40), st.integers(1, 400))
NOISE = np.random.default_rng(0).integers(0, 256, (400, 400), np.uint8)
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
    goal = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    return ImageDecoder(goal, crop=crop, **options)


@given(decoders(), sides, sides, st.booleans(), st.integers(0, 2**63 - 1))
@example(ImageDecoder(9, crop="random_resized", ratio=(1e300, 1e300)), 3, 4, False, 0)
@example(ImageDecoder(9, crop="random_resized", ratio=(1e-300, 1e-300)), 400, 4, True, 0)
@example(ImageDecoder(9, crop="center", resize_short=2**31 - 1), 1, 400, False, 0)
@settings(max_examples=examples(600))
def test_crop_is_what_python_draws(decoder, height, width, is_jpeg, number):
    """Another one would give other pixels of noise; what Python refuses is refused."""
    noise = np.ascontiguousarray(NOISE[:height, :width])
    content = encoded(noise, "JPEG") if is_jpeg else npy(noise)
    row = np.zeros((1, *decoder.shape), np.uint8)
    rng_of = Generators(7, EPOCH, DECODE, np.array([number]))
    failures = decoder.decode_rows([content], rng_of, [0], row)
    try:
        expected = decoder.decode(content, generator(7, EPOCH, number, DECODE))
    except (ContentError, ArithmeticError, ValueError) as error:
        expected = error
    if isinstance(expected, Exception):
        assert [str(error) for _, error in failures] == [str(expected)]
    else:
        assert failures == []
        np.testing.assert_array_equal(row[0], expected)


CONTENTS = [
    jpeg(PHOTO, "444"),
    encoded(PHOTO, "PNG"),
    encoded(PHOTO, "JPEG", progressive=True),
    BASELINE[:2] + b"\xff\xdc\0\4\0\x4b" + BASELINE[2:],  # A segment that libjpeg skips.
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
def test_batch_is_its_images_one_by_one(options):
    decoder = ImageDecoder((50, 60), **options)
    numbers = np.arange(len(CONTENTS)) + 100
    rng_of = Generators(1, 2, DECODE, numbers)
    rows = [5, 0, 8, 1, 2, 3, 7, 4, 6]
    out = np.zeros((9, *decoder.shape), decoder.dtype)
    failures = decoder.decode_rows(CONTENTS, rng_of, rows, out)
    assert sorted(place for place, _ in failures) == [7, 8]
    for place, row in list(enumerate(rows))[:7]:
        rng = generator(1, 2, int(numbers[place]), DECODE)
        np.testing.assert_array_equal(out[row], decoder.decode(CONTENTS[place], rng))


def test_own_generators_are_drawn_from():
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


def test_subclass_says_what_is_wanted():
    decoder, out = Upper(8, crop="center"), np.zeros((1, 8, 8, 3), np.uint8)
    own, pieces = Generators(0, 0, DECODE, np.arange(1)), np.array([(0, 1, len(BASELINE))])
    assert decoder.decode_rows([b"x" + BASELINE], own, [0], out, pieces) == []
    np.testing.assert_array_equal(out[0], decoder.decode(BASELINE))
    assert (out[0] != ImageDecoder(8, crop="center").decode(BASELINE)).any()
    with pytest.raises(ValueError, match="rng_of must give generators"):
        ImageDecoder(8, crop="random").decode_rows([BASELINE], None, [0], out)


WHOLE = (0, 0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, False)
NUMBERS = (0, 75, 103, 1, 0, 75, 9, 0, 0, 103, 9, 0, 0)


def called(**other: Any) -> Any:
    """What the kernel says of these arguments, of which others are right."""
    module = kernel.load()
    arguments = {
        "buffers": [b"ab" + BASELINE],
        "pieces": np.array([(0, 2, len(BASELINE))]),
        "rows": np.array([0]),
        "crops": WHOLE,
        "key": np.zeros(2, np.uint64),
        "counters": np.zeros((1, 4), np.uint64),
        "out": np.zeros((1, 9, 9, 3), np.uint8),
        "shape": (1, 9, 9),
        "first": False,
        "table": None,
    }
    assert module is not None
    return module.decode(*{**arguments, **other}.values())


@pytest.mark.parametrize("value", [-(2**63), -1, 1, 3, 1 << 20, 2**31, 2**62, 2**63 - 1])
def test_no_piece_or_row_leads_out_of_memory(value):
    assert called() == b"\1"
    for place in range(3):
        piece = [0, 2, len(BASELINE)]
        piece[place] = value
        assert called(pieces=np.array([piece])) == b"\0"
    memory = np.full((3, 9, 9, 3), 77, np.uint8)
    assert called(rows=np.array([value]), out=memory[1:2]) == b"\0"
    assert (memory == 77).all()
    for buffer in (None, 3, memoryview(BASELINE)[::2]):
        assert called(buffers=[buffer], pieces=None) == b"\0"


@pytest.mark.parametrize("value", [-(2**31), -1, 0, 3, 9, 104, 2**31 - 1])
def test_no_crop_leads_out_of_memory(value):
    assert called(crops=np.array([NUMBERS], np.int32)) == b"\1"
    assert opencv.MOST_PIXELS == kernel.load().MOST_PIXELS
    for place in range(13):
        memory = np.full((3, 9, 9, 3), 77, np.uint8)
        numbers = [*NUMBERS[:place], value, *NUMBERS[place + 1 :]]
        crops = np.array([numbers], np.int32)
        assert called(crops=crops, out=memory[1:2]) in (b"\0", b"\1")
        assert (memory[::2] == 77).all()


@pytest.mark.parametrize("offset", [-1, 2**62, 2**63 - 1, -(2**63), len(BASELINE)])
def test_no_offset_of_a_record_leads_out_of_memory(offset):
    module: Any = kernel.load()
    schema = module.schema([(b"a", 3, 0, False, 1, b"", None)])
    choices = [None, -1, 0, 1, 2**63 - 1], [0, 1, 2], [True, False]
    for size, kind, checked in itertools.product(*choices):
        sizes = None if size is None else np.array([size, size])
        file = BASELINE, np.array([0, offset]), sizes, np.full(2, checked), kind, b"", 0
        number, column = np.array([1]), np.zeros(1, np.int64)
        assert module.gather(schema, module.files([file]), number, None, (column,)) == b"\1"


@pytest.mark.parametrize("format", CODECS)
def test_record_has_the_size_of_its_index(format):
    module: Any = kernel.load()
    if format == "recordio":
        payload = irheader.pack(0.5, 7, b"image")
    else:
        payload = example_codec.encode({IMAGE: b"image", LABEL: 0.5})
    content = CODECS[format].encode(bytes(payload))
    fields = [(IMAGE, example_codec.BYTES_LIST, recordrows._CONTENT, True)]
    fields.append((LABEL, example_codec.FLOAT_LIST, recordrows._OWN_LABEL, False))
    schema = module.schema([(name.encode(), *more, 1, b"", None) for name, *more in fields])
    number, kind = np.zeros(1, np.int64), CODECS[format].kernel_kind
    for more in (None, 0, -4, 4):
        sizes = None if more is None else np.array([len(content) + more])
        file = content, np.array([0]), sizes, np.array([False]), kind, b"", 0
        place, label = np.zeros((1, 3), np.int64), np.zeros(1, np.float32)
        found = module.gather(schema, module.files([file]), number, None, (place, label))
        assert found == (b"\1" if more else None)
        if not more:
            _, begin, size = place[0].tolist()
            assert (content[begin : begin + size], label[0]) == (b"image", 0.5)


def test_pieces_of_a_file(tmp_path):
    """They may lie beyond its end, which is no image; one in memory may be beside them."""
    photo, line = encoded(picture(8, 8), "JPEG"), encoded(picture(9, 8), "PNG")
    path = tmp_path / "images"
    path.write_bytes(photo + line)
    sizes = len(photo), len(line)
    pieces = [(0, 0, sizes[0]), (0, *sizes), (0, sizes[0] + 1, sizes[1]), (1, 0, sizes[0])]
    pieces += [(0, 1 << 40, 9), (0, -1, 9), (0, 0, 0)]
    rows = np.arange(len(pieces))
    out = np.zeros((len(rows), 8, 8, 3), np.uint8)
    with open(path, "rb", buffering=0) as file:
        failed = ImageDecoder(8).decode_rows([file, photo], None, rows, out, np.array(pieces))
    assert [at for at, _ in failed] == [2, 4, 5, 6]
    np.testing.assert_array_equal(out[0], ImageDecoder(8).decode(photo))
    np.testing.assert_array_equal(out[1], ImageDecoder(8).decode(line))
    np.testing.assert_array_equal(out[3], out[0])


@pytest.mark.full
def test_million_images_leave_nothing_in_memory():
    """Whole ones, damaged ones, and lists of which one member is no buffer."""
    content = encoded(picture(8, 8), "JPEG")
    buffers = [content, content[:-20] + b"\xff\xd9"] * 500
    module: Any = kernel.load()
    offsets, checked, label = np.arange(9), np.zeros(9, bool), np.zeros(9, np.int64)
    field = (b"a", 3, 0, False, 1, b"", None)
    rows, wrong = np.zeros(1000, np.int64), np.full((1000, 3), 1 << 40)
    rng_of = Generators(1, 2, DECODE, np.arange(1000))
    asked = kernel.settings_of(0, None, (1.0, 1.0), (1.0, 1.0), True)
    into = Target(np.zeros((1, 8, 8, 3), np.uint8), False, None)
    two = {"rows": np.zeros(2, np.int64), "counters": np.zeros((2, 4), np.uint64)}

    def work() -> None:
        crops = np.zeros((2, 13), np.int32)
        assert called(buffers=[content, None], pieces=None, crops=crops, **two) == b"\0\0"
        assert kernel.decode(buffers, None, rng_of, rows, asked, into) == list(range(1, 1000, 2))
        assert len(kernel.decode(buffers, wrong, rng_of, rows, asked, into)) == 1000
        schema = module.schema([field])
        files = module.files([(content, offsets, None, checked, 1, b"", 0)])
        assert module.gather(schema, files, offsets, None, (label,)) == b"\1" * 9
        for arguments in (
            (schema, files, offsets, None, (b"",)),
            (schema, schema, offsets, None, ()),
        ):
            with pytest.raises((ValueError, BufferError)):
                module.gather(*arguments)

    for _ in range(20):
        work()
    before = psutil.Process().memory_info().rss
    for _ in range(1000):
        work()
    assert psutil.Process().memory_info().rss - before < 8 << 20


SCRIPT = """
import os, sys, threading
import numpy as np
from adapters import ImageDecoder

content, decoder = open(sys.argv[1], "rb").read(), ImageDecoder((30, 40))
expected = decoder.decode(content)

def work(times):
    for _ in range(times):
        out = np.zeros((9, 30, 40, 3), np.uint8)
        assert decoder.decode_rows([content] * 9, None, range(9), out) == []
        assert (out == expected).all()

for _ in range(3):
    threading.Thread(target=work, args=(10**9,), daemon=True).start()
for _ in range(20):
    if (child := os.fork()) == 0:
        work(5)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print("done")
"""


def test_forks_and_exit_find_threads_at_work(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(BASELINE)
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def assert_crcs_are_pythons(data: bytes, parts: Any) -> None:
    begins, ends = np.array(parts, np.int64).reshape(-1, 2).T.copy()
    found = tfrecord.masked_crcs_of(memoryview(data), begins, ends)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrecord, "load", lambda: None)
        expected = tfrecord.masked_crcs_of(memoryview(data), begins, ends)
    assert found.tolist() == expected.tolist()


@given(
    st.binary(min_size=1, max_size=64),
    st.lists(st.tuples(st.integers(0, 64), st.integers(0, 64)), max_size=9),
)
def test_crc_of_any_parts(data, pairs):
    """Some of one size, which go together, and others."""
    assert_crcs_are_pythons(data, [sorted(min(end, len(data)) for end in pair) for pair in pairs])


@pytest.mark.parametrize("size", [4_031, 4_032, 8_064, 40_003])
def test_crc_of_long_parts(size):
    """Many are above what the GIL is kept for."""
    data = np.random.default_rng(size).bytes(size + 3) * (400_000 // size)
    begins = range(3, len(data), size + 3)
    assert_crcs_are_pythons(data, [(begin, begin + size) for begin in begins])
