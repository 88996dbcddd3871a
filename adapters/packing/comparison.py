"""Comparison of encodings: bytes per image, and samples/s on this machine.

A few of the images are encoded in each way and decoded from memory for a moment, in as many threads
as there are CPUs. Nothing is written. It takes less than 2 seconds, unless a single image takes
longer.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from adapters.arguments import check_integer
from adapters.cpus import usable_cpus
from adapters.errors import ContentError, RecordError
from adapters.generators import DECODE, Generators
from adapters.images import ImageDecoder
from adapters.packing.encoding import ENCODINGS, ImageEncoder
from adapters.packing.inputs import Inputs, inputs_of

# Images to encode, within these limits of time and memory.
_PICTURES = 64
_ENCODING_SECONDS = 0.4
_ENCODED_BYTES = 256 << 20
# More than the processor's cache holds, so that images come from memory, as in training.
_COPIED_BYTES = 64 << 20
_MOST_COPIES = 512
# For each encoding in each round; the best round counts.
_DECODING_SECONDS = 0.1
_ROUNDS = 2
_BATCH = 32
_SIDE = 224


@dataclass(frozen=True)
class Cost:
    """Size and speed of one encoding.

    Args:
        encoding: Name of the encoding.
        picture_bytes: Average bytes of an image.
        samples_per_second: Decoding to uint8 (224, 224, 3) by random-resized crops and flips, with
            all CPUs.
    """

    encoding: str
    picture_bytes: float
    samples_per_second: float


@dataclass(frozen=True)
class Comparison:
    """Result of ``compare``.

    Args:
        inputs: Number of images.
        pictures: Number of images that were encoded.
        workers: Threads that decoded.
        costs: One for each encoding.
    """

    inputs: int
    pictures: int
    workers: int
    costs: tuple[Cost, ...]


def compare(
    source: Any,
    *,
    resize: int | None = None,
    quality: int | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Comparison:
    """Compare ``pack``'s encodings for these images, on this machine.

    Args:
        source: As for ``pack``.
        resize: Pixels of the shorter side, or None.
        quality: JPEG quality, or None.
        root: Folder of the paths in a list; by default the list's own.

    Raises:
        OSError: A folder or list, or each image that was tried, can't be read.
        RecordError: None of the images that were tried can be encoded in each way.
        ValueError: The source is no source, or is empty.
    """
    if resize is not None:
        check_integer("resize", resize, 1, " or None")
    inputs = inputs_of(source, root)
    if not len(inputs):
        raise ValueError("source must hold at least one image, got none")
    encoded = _encoded(inputs, resize, quality)
    workers = usable_cpus()
    held = {name: _copied(pictures) for name, pictures in encoded.items()}
    paces = dict.fromkeys(encoded, 0.0)
    for _ in range(_ROUNDS):  # In turns, as the machine may be busy at times.
        for name, pictures in held.items():
            paces[name] = max(paces[name], _pace(pictures, workers))
    costs = (
        Cost(name, sum(map(len, pictures)) / len(pictures), paces[name])
        for name, pictures in encoded.items()
    )
    return Comparison(len(inputs), len(encoded["raw"]), workers, tuple(costs))


def _encoded(inputs: Inputs, resize: int | None, quality: int | None) -> dict[str, list[bytes]]:
    """Encode some of the images, spread over all of them, in each encoding."""
    count = len(inputs)
    chosen = np.unique(np.linspace(0, count - 1, min(count, _PICTURES)).astype(int)).tolist()
    # In random order, as time may run out.
    np.random.default_rng(0).shuffle(chosen)
    found: dict[str, list[bytes]] = {name: [] for name in ENCODINGS}
    held, failure = 0, None
    end = time.perf_counter() + _ENCODING_SECONDS
    for number in chosen:
        try:
            item = inputs[number]
            content = item.content()
            jpeg = ImageEncoder("", "jpeg", resize, quality).image(content)
            raw = ImageEncoder("", "raw", resize, None).image(content)
        except ContentError as error:
            failure = failure or RecordError(item.name, None, 0, error.expected, error.found)
            continue
        except RecordError as error:
            failure = failure or error
            continue
        except OSError:
            continue
        for name, picture in zip(ENCODINGS, (jpeg, raw), strict=True):
            found[name].append(picture)
            held += len(picture)
        if time.perf_counter() > end or held > _ENCODED_BYTES:
            break
    if not found["raw"]:
        raise failure or OSError("none of the pictures that were tried can be read")
    return found


def _copied(pictures: list[bytes]) -> list[bytes]:
    """Repeat the images, each copy in its own memory."""
    each = sum(map(len, pictures)) // len(pictures)
    copies = max(len(pictures), min(_MOST_COPIES, _COPIED_BYTES // each))
    return [bytes(bytearray(pictures[n % len(pictures)])) for n in range(copies)]


def _pace(pictures: list[bytes], workers: int) -> float:
    """Measure the samples a second of all workers together."""
    decoder = ImageDecoder(_SIDE, crop="random_resized", flip=True)

    def work(worker: int) -> tuple[int, float]:
        rng = np.random.default_rng(worker)
        out = np.empty((_BATCH, _SIDE, _SIDE, 3), np.uint8)
        done = -_BATCH  # The first batch doesn't count: its memory is new.
        begun = end = 0.0
        while done <= 0 or time.perf_counter() < end:
            numbers = rng.integers(len(pictures), size=_BATCH)
            rng_of = Generators(0, worker, DECODE, numbers)
            batch = [pictures[n] for n in numbers.tolist()]
            if failures := decoder.decode_rows(batch, rng_of, range(_BATCH), out):
                raise failures[0][1]
            done += _BATCH
            if not done:
                begun = time.perf_counter()
                end = begun + _DECODING_SECONDS
        return done, time.perf_counter() - begun

    with ThreadPoolExecutor(workers, "adapters-compare") as pool:
        return sum(done / seconds for done, seconds in pool.map(work, range(workers)))
