"""Ratios of folders, packed pictures and mixes to our own JPEG path, and to peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

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
    CPUS,
    KERAS,
    MXNET,
    PEER_COUNTED,
    TENSORFLOW,
    Contestants,
)
from benchmarks.harness.installed import Peer
from benchmarks.harness.ratios import BATCH, Ratio, measure_ratio
from benchmarks.harness.row import Measurement
from benchmarks.lab.experiments import kernel_limit, packing
from benchmarks.lab.experiments.shards import find_digit_shards
from benchmarks.lab.peers import directory, ffcv
from benchmarks.peers import tf_data
from benchmarks.peers.pictures import SIDE


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one ratio, in a process of its own."""
    return measure_ratio(TABLE[options["loader"]], options)


def squeezing_decoder() -> Any:
    """Whole pictures as Keras's `image_dataset_from_directory` makes them: float32, 0 to 255."""
    from adapters import ImageDecoder

    return ImageDecoder(SIDE, dtype="float32")


def united_pictures_for_keras(unite: Callable[[list[Any]], Any]) -> Any:
    """A SafeSequence of the pictures of three sources, mixed or one source after another.

    The three together take three times as much memory as one, which makes their pages come slower.
    """
    from adapters import SafeSequence, open_records

    path = find_photographs().tfrecord
    sources = [open_records(path, decode=our_records.training_decoder()) for _ in range(3)]
    return SafeSequence(unite(sources), BATCH, shuffle=True)


def packed_for_keras(encoding: str) -> Any:
    """A SafeSequence of what `pack` made of the pictures, their shorter side 256."""
    from adapters import SafeSequence, open_records

    source = open_records(find_packed(encoding), decode=our_records.training_decoder())
    return SafeSequence(source, BATCH, shuffle=True)


def folder_for_keras(decoder: Any) -> Any:
    """A SafeSequence of the JPEG files in a folder for each class."""
    from adapters import SafeSequence, open_images

    return SafeSequence(open_images(find_photographs().folder, decode=decoder), BATCH, shuffle=True)


def mixed_digits_for_keras() -> Any:
    """A SafeSequence of as many of these out of each of three sources."""
    from adapters import SafeSequence, mix, open_records

    paths = find_digit_shards()
    sources = [
        open_records(
            paths[part::3], decode=our_records.digit_features(), outputs=("image", "label")
        )
        for part in range(3)
    ]
    return SafeSequence(mix(sources), BATCH, shuffle=True, batch_transform=our_records.scaled)


def _digit_shards() -> Contestants:
    paths = find_digit_shards()
    ours = partial(our_records.digit_examples_for_keras, find_digit_shards)
    return {
        "SafeSequence, auto": our_records.digits(ours),
        "tf.data, AUTOTUNE": tf_data.digits_contestant(paths, 2_000, None),
        "tf.data, interleaved": tf_data.digits_contestant(paths, 2_000, None, True),
    }


def _limit() -> Contestants:
    return {
        "SafeSequence, auto": our_records.pictures(),
        f"bare C, {CPUS} threads": kernel_limit.bare_loop(find_photographs(), CPUS),
    }


def _pack() -> Contestants:
    photographs = find_photographs()
    return {
        f"pack, {CPUS} workers": packing.pack(photographs, CPUS),
        f"im2rec.py, {CPUS} workers": packing.im2rec(photographs, CPUS),
    }


def _folder() -> Contestants:
    make = partial(folder_for_keras, our_records.training_decoder())
    return {
        "SafeSequence, folder": our_records.contestant_of(make),
        "SafeSequence, TFRecord": our_records.pictures(),
    }


def _directory() -> Contestants:
    make = partial(folder_for_keras, squeezing_decoder())
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
    source = open_images(photographs.folder, decode=squeezing_decoder())
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
        f"FFCV raw, {CPUS} threads": ffcv.raw_contestant(find_photographs(), PEER_COUNTED, CPUS),
    }


def _mixed_pictures() -> Contestants:
    from adapters import concatenate, mix

    of = united_pictures_for_keras
    return {
        "SafeSequence, a mix of three": our_records.contestant_of(partial(of, mix)),
        "SafeSequence, the three as one": our_records.contestant_of(partial(of, concatenate)),
    }


def _mixed_digits() -> Contestants:
    one = partial(our_records.digit_examples_for_keras, find_digit_shards)
    return {
        "SafeSequence, a mix of three": our_records.digits(mixed_digits_for_keras),
        "SafeSequence, one source": our_records.digits(one),
    }


def _packed(encoding: str) -> Callable[[], float]:
    return our_records.contestant_of(partial(packed_for_keras, encoding))


@cache  # Rows of the same process ask again.
def _centres(encoding: str) -> Mapping[str, float]:
    from adapters import open_records

    path = find_packed(encoding)
    return centres_of(lambda decode: open_records(path, decode=decode), find_photographs())


_FFCV = Peer("Keras", "ffcv", "ffcv")
_C = Peer("Keras", "", "a C compiler", kernel_limit.missing)
_AGAINST: Mapping[str, tuple[Peer, Callable[[str], Contestants]]] = {
    "JPEG": (KERAS, _against_jpeg),
    "JPEG of 256": (KERAS, _against_packed_jpeg),
    "FFCV": (_FFCV, _against_ffcv),
}


def _packed_rows() -> Mapping[str, Ratio]:
    return {
        f"{title} of 256 against {other}": Ratio(
            peer,
            "samples/s",
            partial(contestants, encoding),
            3,
            smoke=True,
            correct=partial(_centres, encoding),
            data=(partial(find_packed, encoding), partial(find_packed, "jpeg")),
        )
        for title, encoding in (("raw", "raw"),)
        for other, (peer, contestants) in _AGAINST.items()
    }


_PICTURES, _SHARDS = (find_photographs,), (find_digit_shards,)
TABLE: Mapping[str, Ratio] = {
    "JPEG folder against TFRecord": Ratio(
        KERAS, "samples/s", _folder, 5, smoke=True, correct=_squeezed, data=_PICTURES
    ),
    "JPEG folder against image_dataset_from_directory": Ratio(
        TENSORFLOW,
        "samples/s",
        _directory,
        3,
        "tensorflow",
        smoke=True,
        correct=_squeezed,
        data=_PICTURES,
    ),
    "JPEG TFRecord against its limit": Ratio(_C, "samples/s", _limit, 5, data=_PICTURES),
    "pack against im2rec": Ratio(MXNET, "images/s", _pack, 5, data=_PICTURES),
    "typed digits of 100 TFRecords against tf.data": Ratio(
        TENSORFLOW, "samples/s", _digit_shards, 3, "tensorflow", smoke=True, data=_SHARDS
    ),
    "a mix of JPEG TFRecords against one": Ratio(
        KERAS, "samples/s", _mixed_pictures, 5, smoke=True, data=_PICTURES
    ),
    "a mix of typed digits against one": Ratio(
        KERAS, "samples/s", _mixed_digits, 5, smoke=True, data=_SHARDS
    ),
    **_packed_rows(),
}
