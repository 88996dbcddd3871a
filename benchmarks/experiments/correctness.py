"""Whether a loader delivers what it should: which pixels, and each sample once in an epoch.

Pixels are compared with what OpenCV makes of the JPEG file, decoded whole, resized without
antialiasing and cut, or cut and resized, whichever is nearer. Of random boxes nobody
knows the pixels beforehand: there, it is looked whether they are boxes of pictures in random order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.data.photographs import PICTURES, Photographs
from benchmarks.harness.ratios import BATCH
from benchmarks.peers.pictures import EVAL, SHORT, SIDE, with_opencv

# Pixels on either side of a block. Of evaluated pictures, blocks are at most 4.3 grey levels from
# OpenCV's on average, as loaders round the place of the centre and resize in their own ways; of
# another picture more than 11, of the same one flipped more than 8.
BLOCK = 8
MOST_DIFFERENCE = 6
MOST_MEAN_DIFFERENCE = 40  # Means of 64 random pictures vary by some 8 grey levels.
OFF = "pixels_off"

Pixels = npt.NDArray[np.uint8]


def check(
    batch: Any, work: str, photographs: Photographs, ordered: bool = True, whole: bool = False
) -> dict[str, float]:
    """Look whether a loader's first batch is what the work asks for.

    Args:
        batch: (pictures, numbers), as the loader's framework has them.
        work: Of the two.
        photographs: The files.
        ordered: Whether pictures that are evaluated come in their order.
        whole: Whether of these the whole picture is wanted, squeezed, in place of the centre.

    Returns:
        What `pixels_off` says of pictures that are evaluated; nothing of others.

    Raises:
        ValueError: It isn't.
    """
    pictures, numbers = as_pictures(batch[0]), as_numbers(batch[1])
    in_order = list(range(BATCH))
    if work == EVAL:
        if (numbers != in_order) if ordered else not set(numbers) < set(range(PICTURES)):
            raise ValueError(f"not the centres of the first pictures: {numbers}")
        wanted = references(photographs, numbers, whole)
        differences = np.abs(_blocks(pictures) - _blocks(wanted[0])).mean(axis=(1, 2, 3))
        if differences.max() > MOST_DIFFERENCE:
            off = f"{differences.max():.1f} grey levels off"
            raise ValueError(f"not the centres of the pictures: {off}")
        return min((pixels_off(pictures, each) for each in wanted), key=lambda each: each[OFF])
    if numbers == in_order or len({picture.tobytes() for picture in pictures}) < BATCH:
        raise ValueError(f"not {BATCH} pictures in random order: {numbers}")
    wanted = references(photographs, in_order)
    difference = abs(float(pictures.mean() - wanted[0].mean()))
    if difference > MOST_MEAN_DIFFERENCE or pictures.std(axis=(1, 2, 3)).min() == 0:
        raise ValueError(f"not boxes of the pictures: the mean is {difference:.1f} off")
    return {}


def as_pictures(values: Any) -> Pixels:
    """Pictures as NumPy has them, channels last.

    Args:
        values: Of any framework; float32 from 0 to 1 are rounded.

    Raises:
        ValueError: They aren't a batch of the size that is asked for.
    """
    pictures = _as_array(values)
    if pictures.shape == (BATCH, 3, SIDE, SIDE):
        pictures = pictures.transpose(0, 2, 3, 1)
    if pictures.dtype == np.float32 and pictures.min() >= 0 and pictures.max() <= 1:
        pictures = np.rint(pictures * 255).astype(np.uint8)
    if (pictures.shape, pictures.dtype) != ((BATCH, SIDE, SIDE, 3), np.uint8):
        raise ValueError(f"not uint8 pictures of {SIDE}x{SIDE}: {pictures.dtype} {pictures.shape}")
    return pictures


def as_numbers(values: Any) -> list[int]:
    """The numbers of pictures, which are a batch's labels."""
    numbers: list[int] = _as_array(values).reshape(-1).astype(int).tolist()
    return numbers


def references(
    photographs: Photographs, numbers: Sequence[int], whole: bool = False
) -> list[Pixels]:
    """What OpenCV makes of the pictures.

    Args:
        photographs: The files.
        numbers: Of the pictures.
        whole: Whether all of them, squeezed, and not the centres.

    Returns:
        All that one may mean by it: centres of the resized pictures, and resized centres, which
        begin at whole pixels of the original.
    """
    import cv2

    jpegs = [photographs.paths[number].read_bytes() for number in numbers]
    pictures = [
        cv2.cvtColor(
            cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB
        )
        for jpeg in jpegs
    ]
    if whole:
        return [np.stack([cv2.resize(each, (SIDE, SIDE)) for each in pictures])]
    return [
        np.stack([_centre_of_resized(each) for each in pictures]),
        np.stack([with_opencv(jpeg, None) for jpeg in jpegs]),
    ]


def _centre_of_resized(picture: Pixels) -> Pixels:
    import cv2

    height, width = (round(side * SHORT / min(picture.shape[:2])) for side in picture.shape[:2])
    top, left = (height - SIDE) // 2, (width - SIDE) // 2
    resized = cv2.resize(picture, (width, height))
    return np.asarray(resized[top : top + SIDE, left : left + SIDE])


def pixels_off(pictures: Pixels, wanted: Pixels) -> dict[str, float]:
    """How far pixels are off, in grey levels: on average, and in the worst picture."""
    differences = np.abs(pictures.astype(np.int16) - wanted).mean(axis=(1, 2, 3))
    return {OFF: float(differences.mean()), "worst_off": float(differences.max())}


def centres_of(opened: Callable[[Any], Any], photographs: Photographs) -> dict[str, float]:
    """What is to be said of a source of ours whose labels are the pictures' numbers.

    Args:
        opened: Opens it with an ImageDecoder.
        photographs: The files.
    """
    from adapters import ImageDecoder, SafeSequence

    decoder = ImageDecoder(SIDE, crop="center", resize_short=SHORT)
    with SafeSequence(opened(decoder), BATCH) as sequence:
        found = check(next(iter(sequence)), EVAL, photographs)
    with SafeSequence(opened(decoder), BATCH, shuffle=True) as sequence:
        numbers = [number for batch in sequence for number in as_numbers(batch[1])]
    return found | faults(numbers, range(PICTURES))


def faults(numbers: Iterable[Any], expected: Iterable[Any]) -> dict[str, float]:
    """How many samples of an epoch are lost, and how many come again.

    Args:
        numbers: Of what was delivered, or anything else that tells samples apart.
        expected: The same of all samples.
    """
    seen, wanted = Counter(numbers), Counter(expected)
    return {
        "lost": float((wanted - seen).total()),
        "repeated": float((seen - wanted).total()),
    }


def _as_array(values: Any) -> npt.NDArray[Any]:
    """An array of any framework's."""
    for method in ("asnumpy", "as_array", "numpy"):  # MXNet; DALI; TensorFlow and PyTorch
        if hasattr(values, method):
            return np.asarray(getattr(values, method)())
    return np.asarray(values)


def _blocks(pictures: Pixels) -> npt.NDArray[np.float64]:
    """Means of blocks of 8x8 pixels."""
    count = SIDE // BLOCK
    return pictures.reshape(BATCH, count, BLOCK, count, BLOCK, 3).mean(axis=(2, 4))
