"""Folders of images to pack, and what came of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.packing import Manifest
from adapters.records import RecordFiles, example, irheader
from tests.images.pictures import encoded, picture

SUFFIXES = {"recordio": ".rec", "tfrecord": ".tfrecord"}
FORMATS = tuple(SUFFIXES)
ROOT = Path(__file__).parents[2]


def image(number: int, height: int = 20, width: int = 30, channels: int = 3) -> NDArray[np.uint8]:
    """Another one for each number, uint8 ``(height, width, channels)``."""
    return picture(height, width, channels) + np.uint8(7 * number % 256)


def jpeg(number: int, height: int = 20, width: int = 30) -> bytes:
    return encoded(image(number, height, width), "JPEG", quality=80)


def arrays(count: int) -> Any:
    return np.stack([image(number) for number in range(count)]), np.arange(count)


def folder(root: Path, images: int = 6, classes: Iterable[str] = ("ant", "bee")) -> Path:
    """JPEGs, dealt out to the folders of their classes."""
    names = list(classes)
    for number in range(images):
        place = root / names[number % len(names)]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:03d}.jpg").write_bytes(jpeg(number))
    return root


def files_in(place: Path) -> dict[str, bytes]:
    files = (path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


def packed(out: Path, manifest: Manifest) -> list[tuple[Any, int, bytes]]:
    files = RecordFiles([out.with_name(each.name) for each in manifest.files])
    records: list[tuple[Any, int, bytes]] = []
    for number in range(len(files)):
        payload = files.read(number)
        if manifest.format == "recordio":
            label, identity, content = irheader.unpack(payload)
            label = label.tolist() if isinstance(label, np.ndarray) else label
        else:
            features = example.decode(payload)
            label = features["image/class/label"].tolist()
            label = label[0] if len(label) == 1 else label
            identity, content = features["image/id"][0], features["image/encoded"][0]
        records.append((label, int(identity), bytes(content)))
    return records


def accounted(manifest: Manifest) -> bool:
    records = sum(each.records for each in manifest.files)
    return manifest.read == manifest.packed + len(manifest.skipped) and manifest.packed == records


def finished(place: Path) -> list[Path]:
    """Files of records that an interrupted run has finished."""
    found = map(Manifest.load, place.glob("manifest.json"))
    return [place / each.name for manifest in found for each in manifest.files]
