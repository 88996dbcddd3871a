"""The fingerprint of a training: settings that must match when it resumes.

The settings that an exact resume depends on are saved under the names that users know, and compared
before any state is restored. Workers, learning rates and ``every`` may change, so they aren't part
of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

_NUMBERED = re.compile(r"_\d+(?=[/_.]|$)")


def check_fingerprint(
    saved: Mapping[str, Any],
    here: Mapping[str, Any],
    folder: str | os.PathLike[str],
) -> None:
    """Compare the values that both have, or raise ``ValueError``."""
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
    """Compare the saved ``Order.fingerprint`` with the current one.

    If the position that the training resumes from counts samples, the number of shards and the
    batch size may differ. If it counts batches, the global batch size must not.

    Raises:
        ValueError: A value differs.
    """
    then, now = dict(saved), dict(here)
    if "samples" in position or then.get("shards") != now.get("shards"):
        sizes = [each.pop("batch_size", 1) * each.get("shards", 1) for each in (then, now)]
        if any(count for unit, count in position.items() if unit not in ("epoch", "samples")):
            name = "batch_size times the number of shards"
            then, now = {**then, name: sizes[0]}, {**now, name: sizes[1]}
    for each in (then, now):
        each.pop("shards", None)
    check_fingerprint(then, now, folder)


def unnumbered(name: str) -> str:
    """Strip the numbers that a process appends to layer names from a variable's name."""
    return _NUMBERED.sub("", name)
