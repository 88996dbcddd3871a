"""Whether what goes on is what was saved: by plain values that tell one training from another.

What must be the same for a training to go on exactly is saved with it, under the name that users
know it by, and compared before anything is put back. What may change isn't in it: workers, learning
rates, ``every``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

_NUMBERED = re.compile(r"_\d+(?=[/_.]|$)")


def check_same(
    saved: Mapping[str, Any],
    here: Mapping[str, Any],
    folder: str | os.PathLike[str],
) -> None:
    """Compare what a training was with what it is now.

    Args:
        saved: Values by their names, as they were.
        here: As they are; names that the other one hasn't got aren't compared.
        folder: Where the training is.

    Raises:
        ValueError: One differs.
    """
    for name, value in saved.items():
        if name in here and here[name] != value:
            raise ValueError(
                f"{name} must be {value!r}, as when the training in {folder} was saved, got "
                f"{here[name]!r}: make it as it was, or give Resume a new folder"
            )


def check_order(
    saved: Mapping[str, Any],
    here: Mapping[str, Any],
    position: Mapping[str, int],
    folder: str | os.PathLike[str],
) -> None:
    """The same for what ``Order.likeness`` tells.

    Where the position counts samples, other shards may go on, or as many, in batches of another
    size; what counts batches goes on where those of all shards together are as large as they were.

    Args:
        saved: As it was.
        here: As it is.
        position: Where the training goes on.
        folder: Where it is.

    Raises:
        ValueError: One differs.
    """
    then, now = dict(saved), dict(here)
    if "samples" in position or then.get("shards") != now.get("shards"):
        sizes = [each.pop("batch_size", 1) * each.get("shards", 1) for each in (then, now)]
        if any(count for unit, count in position.items() if unit not in ("epoch", "samples")):
            name = "batch_size times the number of shards"
            then, now = {**then, name: sizes[0]}, {**now, name: sizes[1]}
    for each in (then, now):
        each.pop("shards", None)
    check_same(then, now, folder)


def unnumbered(name: str) -> str:
    """A variable's name without the numbers that a process counts its layers by."""
    return _NUMBERED.sub("", name)
