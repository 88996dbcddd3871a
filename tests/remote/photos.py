"""Pictures in a store or behind a web server, and batches of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from adapters import ImageDecoder, SafeSequence, open_images

DECODE = ImageDecoder(16, crop="random_resized", flip=True)


def upload(bucket: Any, root: Path, to: str = "/bucket/photos") -> None:
    """Put all files below a folder into the store."""
    for path in root.rglob("*"):
        if path.is_file():
            bucket.pipe_file(f"{to}/{path.relative_to(root)}", path.read_bytes())


def serve(server: Any, root: Path, prefix: str = "photos/") -> None:
    """Have the web server give all files below a folder."""
    for path in root.rglob("*"):
        if path.is_file():
            server.objects[prefix + str(path.relative_to(root))] = path.read_bytes()


def urls_of(server: Any, root: Path) -> list[str]:
    """Where it gives the images of a folder, in their order."""
    files = open_images(root).files
    return [server.url(f"photos/{Path(each).relative_to(root)}") for each in files]


def batches(source: Any, **options: Any) -> list[Any]:
    """All of an epoch."""
    with SafeSequence(source, 5, shuffle=True, seed=3, **options) as sequence:
        return [[np.array(leaf) for leaf in batch] for batch in sequence]


def assert_equal(found: list[Any], expected: list[Any]) -> None:
    for mine, own in zip(found, expected, strict=True):
        for one, other in zip(mine, own, strict=True):
            np.testing.assert_array_equal(one, other)
