"""A JPEG is taken or refused alike on every processor, and with and without the native kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from adapters.images import kernel
from tests.images.pictures import encoded

# Prints for each image whether it is read.
PROGRAM = """
import sys
from adapters import ImageDecoder, RecordError, open_images

photos = open_images(sys.argv[1:], decode=ImageDecoder((32, 32)))
for number in range(len(photos)):
    try:
        photos[number:number + 1]
    except RecordError:
        print("refused")
    else:
        print("taken")
"""


def photo(**options: object) -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)
    return encoded(noise, "JPEG", **options)


def contents() -> list[bytes]:
    random = np.random.default_rng(1)
    found = []
    for jpeg in (photo(), photo(subsampling=0), photo(progressive=True)):
        found.append(jpeg)
        for before_end in (
            *(b"\xff" * 5, b"\x00", b"\x12\x34", b"\xff\x00", b"\x55" * 9, b"\x55" * 40),
            *(b"\xff\xd0", b"\xff\xc4\x00\x02", b"\xff\xfe\x00\x04ab", b"\xff\xd8", b"\xff\x02"),
        ):
            found += [jpeg[:-2] + before_end + jpeg[-2:], jpeg[:-2] + before_end]
        for _ in range(20):
            changed = bytearray(jpeg)
            changed[int(random.integers(620, len(jpeg) - 2))] ^= 1 << int(random.integers(8))
            found.append(bytes(changed))
        found += [jpeg + b"behind", jpeg[: len(jpeg) // 2], jpeg[: len(jpeg) // 2] + jpeg[-2:]]
    return found


def outcomes(files: list[Path], **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, files)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(kernel.load() is None, reason="the kernel isn't built, or switched off")
def test_a_jpeg_is_taken_or_refused_alike_with_and_without_vectors_and_kernel(tmp_path):
    files = []
    for number, content in enumerate(contents()):
        files.append(tmp_path / f"{number:03}.jpg")
        files[-1].write_bytes(content)
    without = outcomes(files, ADAPTERS_KERNEL="0")
    assert len(without) == len(files)
    assert set(without) == {"taken", "refused"}
    assert outcomes(files, ADAPTERS_VECTORS="0") == without
    assert outcomes(files, ADAPTERS_VECTORS="1") == without
