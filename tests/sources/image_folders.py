"""Folders of small images, a folder per class."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from adapters import open_images, pack
from tests.packing.materials import folder, jpeg

__all__ = ["folder", "jpeg", "names_of", "put", "varied"]


def put(root: Path, *names: str) -> Path:
    """JPEGs of these names below a folder, all different."""
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(number))
    return root


def varied(root: Path, count: int = 11, classes: Iterable[str] = ("ant", "bee", "cat")) -> Path:
    """JPEGs of sizes that differ, dealt out to classes."""
    names = list(classes)
    for number in range(count):
        path = root / names[number % len(names)] / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(number, 20 + number, 50 - number))
    return root


def varied_and_packed(place: Path) -> tuple[Path, Path]:
    """A folder of JPEGs of several sizes, and the same packed, in a new folder."""
    records = place / "out.tfrecord"
    pack(varied(place / "in"), records, format="tfrecord", seed=None)
    return place / "in", records


def names_of(root: Path, **arguments: Any) -> list[str]:
    """Paths below the folder, of all files that count."""
    return [str(Path(path).relative_to(root)) for path in open_images(root, **arguments).files]
