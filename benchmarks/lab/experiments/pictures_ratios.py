"""What folders of pictures and raw pictures must be worth, against our own JPEG path and peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks.data.examples import find_digit_shards
from benchmarks.data.photographs import PICTURES, find_packed, find_photographs
from benchmarks.experiments import our_records
from benchmarks.experiments.correctness import (
    as_numbers,
    centres_of,
    faults,
    pixels_off,
    references,
)
from benchmarks.experiments.records_ratios import (
    KERAS,
    PEER_COUNTED,
    TENSORFLOW,
    Contestants,
    Table,
    finished,
    measure_row,
)
from benchmarks.harness.ratios import BATCH, Ratio
from benchmarks.harness.row import Measurement
from benchmarks.lab.peers import directory, ffcv
from benchmarks.peers.installed import Peer


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one ratio, in a process of its own."""
    return measure_row(TABLE, options)


def _folder() -> Contestants:
    make = partial(our_records.folder_for_keras, our_records.training_decoder())
    return {
        "SafeSequence, folder": our_records.contestant_of(make),
        "SafeSequence, TFRecord": our_records.pictures(),
    }


def _directory() -> Contestants:
    make = partial(our_records.folder_for_keras, our_records.squeezing_decoder())
    return {
        "SafeSequence, folder": our_records.contestant_of(make),
        "image_dataset_from_directory": directory.contestant(find_photographs(), PEER_COUNTED),
    }


@cache  # Rows of the same process ask again.
def _squeezed() -> Mapping[str, float]:
    """Of the first batch of the folder, in its order, and of an epoch by class."""
    from adapters import SafeSequence, open_images

    photographs = find_photographs()
    in_order = sorted(range(PICTURES), key=lambda number: (photographs.labels[number], number))
    source = open_images(photographs.folder, decode=our_records.squeezing_decoder())
    with SafeSequence(source, BATCH) as sequence:
        pictures = np.rint(next(iter(sequence))[0]).astype(np.uint8)
    found = pixels_off(pictures, references(photographs, in_order[:BATCH], whole=True)[0])
    with SafeSequence(source, BATCH, shuffle=True) as sequence:
        labels = [label for batch in sequence for label in as_numbers(batch[1])]
    return found | faults(labels, photographs.labels)


def _against_jpeg(encoding: str) -> Contestants:
    return {
        f"SafeSequence, {encoding}": _packed(encoding),
        "SafeSequence, JPEG": our_records.pictures(),
    }


def _against_packed_jpeg(encoding: str) -> Contestants:
    return {
        f"SafeSequence, {encoding}": _packed(encoding),
        "SafeSequence, JPEG of 256 pixels": _packed("jpeg"),
    }


def _against_ffcv(encoding: str) -> Contestants:
    return {
        f"SafeSequence, {encoding}": _packed(encoding),
        "FFCV raw, 2 threads": ffcv.raw_contestant(find_photographs(), PEER_COUNTED, 2),
    }


def _mixed_pictures() -> Contestants:
    from adapters import concatenate, mix

    of = our_records.united_pictures_for_keras
    return {
        "SafeSequence, a mix of three": our_records.contestant_of(partial(of, mix)),
        "SafeSequence, the three as one": our_records.contestant_of(partial(of, concatenate)),
    }


def _mixed_digits() -> Contestants:
    one = partial(our_records.digit_examples_for_keras, find_digit_shards)
    return {
        "SafeSequence, a mix of three": our_records.digits(our_records.mixed_digits_for_keras),
        "SafeSequence, one source": our_records.digits(one),
    }


def _packed(encoding: str) -> Callable[[], float]:
    return our_records.contestant_of(partial(our_records.packed_for_keras, encoding))


@cache  # Rows of the same process ask again.
def _centres(encoding: str) -> Mapping[str, float]:
    from adapters import open_records

    path = find_packed(encoding)
    return centres_of(lambda decode: open_records(path, decode=decode), find_photographs())


_FFCV = Peer("Keras", "ffcv", "ffcv")
_AGAINST: Mapping[str, tuple[Peer, float, Callable[[str], Contestants]]] = {
    "JPEG": (KERAS, 3, _against_jpeg),
    "JPEG of 256": (KERAS, 0, _against_packed_jpeg),
    "FFCV": (_FFCV, 2, _against_ffcv),
}

TABLE: Table = finished(
    {
        "JPEG folder against TFRecord": (
            KERAS,
            Ratio("samples/s", 0.9, _folder, 5, correct=_squeezed),
        ),
        "JPEG folder against image_dataset_from_directory": (
            TENSORFLOW,
            Ratio("samples/s", 2, _directory, 3, "tensorflow", correct=_squeezed),
        ),
        "a mix of JPEG TFRecords against one": (
            KERAS,
            Ratio("samples/s", 0.95, _mixed_pictures, 5),
        ),
        "a mix of typed digits against one": (
            KERAS,
            Ratio("samples/s", 0, _mixed_digits, 5),
        ),
        **{
            f"{title} of 256 against {other}": (
                peer,
                Ratio(
                    "samples/s",
                    bar,
                    partial(contestants, encoding),
                    3,
                    correct=partial(_centres, encoding),
                ),
            )
            for title, encoding in (("raw", "raw"), ("YUV", "yuv420"))
            for other, (peer, bar, contestants) in _AGAINST.items()
        },
    }
)
