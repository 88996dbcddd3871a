"""Which samples of a source are chosen, and which to leave out where some hold no image."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError, RecordError
from adapters.records import RecordFiles
from adapters.sources.contents import Images


def chosen_of(numbers: Any, size: int) -> NDArray[np.int64]:
    """The numbers that ``select`` was given, from 0.

    Args:
        numbers: Integers, which count from the end where they are negative, or a boolean mask.
        size: Samples there are.

    Raises:
        IndexError: A number out of range.
        TypeError: Something else.
        ValueError: A mask of another length, or more than one axis.
    """
    if not hasattr(numbers, "__len__") or isinstance(numbers, (str, bytes)):
        raise TypeError(
            "numbers must be a sequence of sample numbers or a boolean mask, got "
            f"{type(numbers).__name__}; make a list of it"
        )
    given = np.asarray(numbers)
    if given.ndim != 1:
        raise ValueError(f"numbers must have one axis, got {given.ndim}: shape {given.shape}")
    if given.dtype == bool:
        if len(given) != size:
            raise ValueError(
                f"a mask must have one value for each of the {size} samples, got {len(given)}"
            )
        return np.flatnonzero(given).astype(np.int64)
    if len(given) and given.dtype.kind not in "iu":
        raise TypeError(f"numbers must be integers or a boolean mask, got {given.dtype}")
    wrong = np.flatnonzero((given < -size) | (given >= size))
    if len(wrong):
        place = int(wrong[0])
        raise IndexError(
            f"numbers must be in range({-size}, {size}), got {given[place]} in place {place}"
        )
    chosen = given.astype(np.int64)
    chosen[chosen < 0] += size
    return chosen


def without_images(files: RecordFiles, content: Images) -> tuple[int, int]:
    """How many records at the beginning and at the end have nothing where an image should be.

    It reads all of these. insightface's files begin with one that says where the others end, and
    end with one for each person.
    """
    size = len(files)
    first = _until_an_image(files, content, range(size))
    return first, _until_an_image(files, content, range(size - 1, first - 1, -1))


def how_to_leave_out(files: RecordFiles, content: Images) -> str | None:
    """What to write so that records without an image are left out; None where that isn't plain."""
    first, last = without_images(files, content)
    size = len(files)
    if first == size:
        return f"none of the {size} records holds one"
    if not first + last:
        return None
    return (
        f"the first {first} and the last {last} of the {size} records hold none, like the header "
        "and the identities in insightface's files: leave them out with "
        f".select(range({first}, {size - last}))"
    )


def _until_an_image(files: RecordFiles, content: Images, numbers: Iterable[int]) -> int:
    count = 0
    for number in numbers:
        if not is_without_image(files, content, number):
            break
        count += 1
    return count


def is_without_image(files: RecordFiles, content: Images, number: int) -> bool:
    """Whether the record is sound but for an image of no bytes."""
    shard, own = files.locate(number)
    try:
        return not len(content.split(shard.read(own), shard.format)[0])
    except (ContentError, RecordError):
        return False
