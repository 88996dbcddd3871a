"""The figures of one round of an examination, and their medians over several rounds."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

STORAGE, TRANSFORMS, COLLATION = "storage", "transforms", "collation"
COPY, STEP = "copy", "step"

NAMES = {
    "whole": "the whole, loader and step",
    "loader": "the loader alone",
    "storage": "fetching alone",
    "memory": "without fetching: samples in memory",
    "collation": "collation alone",
    "alone": "one batch, made by one thread",
    "same": "the step, with the same batch again and again",
    "copy": "its copy to the device",
}


@dataclass(frozen=True)
class Figures:
    """Seconds per batch of each part in one round; the fields are those of ``Verdict``."""

    loader: float
    whole: float | None = None
    same: float | None = None
    copy: float | None = None
    storage: float | None = None
    memory: float | None = None
    collation: float | None = None
    alone: float | None = None


def medians_of(rounds: Sequence[Figures]) -> Figures:
    """The median of each figure over the rounds; None if it wasn't measured."""
    found = {}
    for field in dataclasses.fields(Figures):
        values = values_of(rounds, field.name)
        found[field.name] = statistics.median(values) if values else None
    return Figures(**found)  # type: ignore[arg-type]


def values_of(rounds: Sequence[Figures], name: str) -> list[float]:
    """The values of a figure in the rounds that measured it."""
    values = (getattr(each, name) for each in rounds)
    return [value for value in values if value is not None]
