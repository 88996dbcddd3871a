"""A source of each kind, and its samples as the whole source gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from adapters import Feature, ImageDecoder, open_images, open_records
from adapters.records import example
from adapters.sources import Source, as_source
from tests.images.pictures import encoded, picture
from tests.sources.image_folders import varied
from tests.sources.record_files import raw_file, write, write_images

SIZE = 24
X = np.arange(SIZE * 6, dtype=np.int32).reshape(SIZE, 2, 3)
Y = np.arange(SIZE) * 10


class Fetching:
    """A data set that fetches the samples of a batch at once."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, number: int) -> Any:
        return {"x": X[number], "y": (Y[number],)}

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        return [self[number] for number in numbers]


def all_samples(source: Source) -> list[Any]:
    """Its samples, with what is random drawn alike each time."""
    return [source.sample(number) for number in range(len(source))]


def _images(folder: Path, format: str, decoder: ImageDecoder) -> Source:
    contents = [encoded(picture(20, 20 + n), "JPEG") for n in range(SIZE)]
    return open_records(write_images(folder / f"images.{format}", format, contents), decode=decoder)


def _folder(folder: Path) -> Source:
    return open_images(varied(folder / "photographs", SIZE, "ab"), decode=RANDOM)


def _features(folder: Path, *shape: int | None) -> Source:
    lists = [[n, n + 1] if shape != (None,) else list(range(n % 3)) for n in range(SIZE)]
    records = [example.encode({"ids": ids, "label": [n]}) for n, ids in enumerate(lists)]
    path = write(folder / "features.tfrecord", "tfrecord", records)
    ids = Feature("int64", shape, default=0) if None in shape else Feature("int64", shape)
    return open_records(path, decode={"ids": ids, "label": Feature("int64")})


def _mapped(folder: Path) -> Source:
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", Y)
    return as_source({"x": np.load(folder / "x.npy", mmap_mode="r"), "y": (Y,)})


RANDOM = ImageDecoder(8, crop="random_resized", flip=True)
CENTRE = ImageDecoder((8, 9), crop="center")

KINDS = {
    "an array": lambda _: as_source(X),
    "arrays": lambda _: as_source((X, Y)),
    "nested arrays": lambda _: as_source({"in": (X, {"b": Y}), "out": Y}),
    "mapped arrays": _mapped,
    "a list": lambda _: as_source([(x, y) for x, y in zip(X, Y.tolist())]),
    "a data set": lambda _: as_source(Fetching()),
    "bytes of records": lambda folder: open_records(raw_file(folder, "recordio")),
    "raw images": lambda folder: open_records(raw_file(folder, "tfrecord"), decode="image"),
    "images": lambda folder: _images(folder, "recordio", CENTRE),
    "random boxes": lambda folder: _images(folder, "tfrecord", RANDOM),
    "a folder of images": _folder,
    "features": lambda folder: _features(folder, 2),
    "features of lengths that vary": lambda folder: _features(folder, None),
}
