"""The compiled kernel called wrongly, from many threads, a million times, in forked processes."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest

from adapters import ImageDecoder
from adapters.generators import DECODE, Generators
from adapters.images import kernel, pixels
from adapters.images.geometry import whole
from adapters.images.kernel import Target
from tests.images.pictures import encoded, picture
from tests.images.test_kernel import BASELINE, by_kernel, pytestmark  # noqa: F401

NUMBERS = (0, 75, 103, 1, 0, 75, 9, 0, 0, 103, 9, 0, 0)


def raw(numbers: Any, rows: int = 1, **other: Any) -> Any:
    module = kernel.load()
    assert module is not None
    arguments = {
        "jpegs": [BASELINE],
        "pieces": None,
        "rows": np.zeros(1, np.int64),
        "crops": np.array([numbers], np.int32),
        "key": None,
        "counters": None,
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
    memory = np.full((3, 9, 9, 3), 77, np.uint8)
    assert raw(numbers, out=memory[1:2]) in (b"\0", b"\1")
    assert (memory[0] == 77).all()
    assert (memory[2] == 77).all()


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
        ({"jpegs": None}, TypeError),
    ],
)
def test_wrong_arguments_are_refused(other, error):
    with pytest.raises(error):
        raw(NUMBERS, **other)


def test_a_size_that_overflows_is_refused():
    with pytest.raises(ValueError, match="fits into memory"):
        raw(NUMBERS, out=np.zeros(0, np.uint8), shape=(1 << 30, 1 << 17, 1 << 17))


# --- threads, memory, processes ---


def test_many_threads_decode_at_once():
    crops = [whole(75, 103, bool(number % 2)) for number in range(8)]
    expected = [by_kernel(BASELINE, crop, 30, 40) for crop in crops]

    def work(_: int) -> Any:
        out = np.zeros((8, 30, 40, 3), np.uint8)
        target = Target(out, False, None)
        assert not kernel.decode_crops([BASELINE] * 8, crops, range(8), target)
        return out

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for out in pool.map(work, range(200)):
            np.testing.assert_array_equal(out, expected)


def test_many_threads_draw_and_decode_at_once():
    decoder = ImageDecoder((30, 40), crop="random_resized", flip=True)
    rng_of = Generators(1, 2, DECODE, np.arange(8))
    expected = np.stack([decoder.decode(BASELINE, rng_of(number)) for number in range(8)])

    def work(_: int) -> Any:
        out = np.zeros((8, 30, 40, 3), np.uint8)
        assert decoder.decode_rows([BASELINE] * 8, rng_of, range(8), out) == []
        return out

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for out in pool.map(work, range(200)):
            np.testing.assert_array_equal(out, expected)


# --- arrays that others write to meanwhile ---

MANY = 48
SIDES = [(300 + 8 * number, 400) for number in range(MANY)]


@pytest.fixture
def uninterrupted() -> Iterator[None]:
    """Another thread runs where this one lets go of the GIL, and nowhere else."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(scope="module")
def photographs() -> list[bytes]:
    return [encoded(picture(*sides), "JPEG") for sides in SIDES]


def crops_and_all(photographs: list[bytes]) -> dict[str, Any]:
    """Arguments of ``decode`` with crops."""
    crops = [kernel.numbers_of(whole(*size), (60, 80)) for size in SIDES]
    return {
        "buffers": photographs,
        "pieces": np.array([(n, 0, len(content)) for n, content in enumerate(photographs)]),
        "rows": np.arange(MANY),
        "crops": np.array(crops, np.int32),
        "key": None,
        "counters": None,
        "out": np.zeros((MANY, 60, 80, 3), np.float32),
        "shape": (MANY, 60, 80),
        "first": False,
        "table": np.arange(3 * 256, dtype=np.float32).reshape(3, 256),
    }


def settings_and_all(photographs: list[bytes]) -> dict[str, Any]:
    """Arguments of ``decode`` with crops that it draws."""
    rng_of = Generators(1, 2, DECODE, np.arange(MANY))
    return {
        **crops_and_all(photographs),
        "crops": kernel.settings_of(3, None, (0.08, 1.0), (0.75, 4 / 3), True),
        "key": rng_of.key.copy(),
        "counters": rng_of.counters.copy(),
    }


def is_rewritten_meanwhile(function: Any, given: dict[str, Any], name: str) -> bool:
    """Whether another thread came to turn that array around before all was decoded."""
    array, begin = given[name], threading.Event()
    before = array.copy()

    def rewrite() -> None:
        assert begin.wait(60)
        array[...] = before[::-1]

    thread = threading.Thread(target=rewrite)
    thread.start()
    begin.set()
    assert function(*given.values()) == b"\1" * MANY
    meanwhile = not np.array_equal(array, before)
    thread.join()
    return meanwhile


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (crops_and_all, "crops"),
        (crops_and_all, "table"),
        (settings_and_all, "pieces"),
        (settings_and_all, "rows"),
        (settings_and_all, "key"),
        (settings_and_all, "counters"),
        (settings_and_all, "table"),
    ],
)
def test_an_array_that_is_rewritten_while_pictures_are_decoded_changes_no_pixel(
    arguments, name, photographs, uninterrupted
):
    decode, expected = kernel.load().decode, arguments(photographs)
    assert decode(*expected.values()) == b"\1" * MANY
    rewritten = False
    while not rewritten:  # A busy machine may let the other thread come too late.
        given = arguments(photographs)
        rewritten = is_rewritten_meanwhile(decode, given, name)
        np.testing.assert_array_equal(given["out"], expected["out"])


@pytest.mark.full
def test_a_million_images_leave_nothing_in_memory():
    """Whole ones, damaged ones, and lists of which one member is no buffer."""
    content = encoded(picture(8, 8), "JPEG")
    damaged = content[:-20] + b"\xff\xd9"
    crop, out = whole(8, 8), np.zeros((1, 8, 8, 3), np.uint8)
    buffers = [content, damaged] * 500
    process = psutil.Process()
    module = kernel.load()
    offsets, checked, label = np.arange(9), np.zeros(9, bool), np.zeros(9, np.int64)
    field = (b"a", 3, 0, False, 1, b"", None)
    rows, wrong = np.zeros(1000, np.int64), np.full((1000, 3), 1 << 40)
    rng_of = Generators(1, 2, DECODE, np.arange(1000))
    asked = kernel.settings_of(0, None, (1.0, 1.0), (1.0, 1.0), True)
    into = Target(out, False, None)
    unwritable = into._replace(out=np.frombuffer(bytes(out.nbytes), np.uint8).reshape(out.shape))

    def work() -> None:
        left = kernel.decode_crops(buffers, [crop] * 1000, [0] * 1000, into)
        assert left == list(range(1, 1000, 2))
        two = {"rows": np.zeros(2, np.int64), "crops": np.zeros((2, 13), np.int32)}
        assert raw(NUMBERS, jpegs=[content, None], **two) == b"\0\0"
        assert kernel.decode(buffers, None, rng_of, rows, asked, into) == left
        assert len(kernel.decode(buffers, wrong, rng_of, rows, asked, into)) == 1000
        schema = module.schema([field])
        files = module.files((content,), (offsets,), (None,), (checked,), (1,))
        assert module.gather(schema, files, offsets, None, (label,)) == b"\1" * 9
        for given in ((schema, files, offsets, None, (b"",)), (schema, schema, offsets, None, ())):
            with pytest.raises((ValueError, BufferError)):
                module.gather(*given)
        with pytest.raises(TypeError):
            module.schema([field, None])
        with pytest.raises(ValueError, match="must fit"):
            module.files((content,), (offsets,), (None,), (checked[1:],), (1,))
        with pytest.raises(ValueError, match="read-only"):
            kernel.decode(buffers, None, rng_of, rows, asked, unwritable)

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
crops = [whole(75, 103)] * 9
kernel.decode_crops([content], crops[:1], [0], kernel.Target(expected, False, None))

def work(times):
    for _ in range(times):
        out = np.zeros((9, 30, 40, 3), np.uint8)
        target = kernel.Target(out, False, None)
        left = kernel.decode_crops([content] * 9, crops, range(9), target)
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
