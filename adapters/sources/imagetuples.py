"""``ImageTuples``: samples of several image files each, such as an image and its mask."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.generators import DECODE, RngOf, generator
from adapters.readahead import Window
from adapters.remote.urls import is_url
from adapters.sources.contents import check_alike
from adapters.sources.files import is_named_like_an_image, runs_below
from adapters.sources.imagefiles import ImageSource
from adapters.sources.origin import Origin
from adapters.sources.source import Leaf, Source

_MOST_NAMED = 3


class ImageTuples(Source):
    """Source that ``open_images`` returns for a tuple of decoders, as for (image, mask).

    All images of a sample are cropped and flipped alike: the sample's generator starts again for
    each. Thread-safe; a process gets a pickled copy.

    Args:
        parts: Images of each column, equally many.

    Raises:
        ValueError: Decoders crop or flip differently.
    """

    stored = False
    holds_images = True

    def __init__(self, parts: Sequence[ImageSource]) -> None:
        self.parts = tuple(parts)
        check_alike([part.decoder for part in parts])

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.parts[0])

    @property
    def files(self) -> list[tuple[str, ...]]:
        """The paths of each sample, as they were given."""
        return list(zip(*(part.files for part in self.parts)))

    def sample(self, number: int, rng: np.random.Generator | None = None) -> tuple[Any, ...]:
        """Return the images, cropped and flipped at random by ``rng``."""
        if rng is None and self.draws:
            rng = generator(0, 0, number, DECODE)
        state: Any = None if rng is None else rng.bit_generator.state
        images = []
        for part in self.parts:
            if rng is not None:
                rng.bit_generator.state = state
            images.append(part.sample(number, rng)[0])
        return tuple(images)

    def origin(self, number: int, rng: np.random.Generator) -> Origin:
        """Return the first file of a sample and the crop of its image."""
        return self.parts[0].origin(number, rng)

    def close(self) -> None:
        """Free memory; files are open only while they are read."""
        for part in self.parts:
            part.close()

    def __enter__(self) -> ImageTuples:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- a batch at a time ---

    @property
    def leaves(self) -> tuple[Leaf, ...] | None:
        """Shape and dtype of all images; None if one depends on the file or a function."""
        known = [part.leaves[0] for part in self.parts if part.leaves is not None]
        return tuple(known) if len(known) == len(self.parts) else None

    def fill(
        self,
        numbers: NDArray[np.int64],
        rng_of: RngOf | None,
        rows: Sequence[NDArray[Any]],
        places: NDArray[np.int64] | None = None,
    ) -> list[tuple[int, Exception]]:
        """Write images into rows of a batch, one array for each column."""
        failures: dict[int, Exception] = {}
        for part, images in zip(self.parts, rows):
            no_labels = np.empty(len(images), np.int64)
            for place, error in part.fill(numbers, rng_of, (images, no_labels), places):
                failures.setdefault(place, error)
        return list(failures.items())

    def fetch(self, numbers: NDArray[np.int64]) -> None:
        """Read files and discard them."""
        for part in self.parts:
            part.fetch(numbers)

    def expect(self, numbers: NDArray[np.int64], elsewhere: bool) -> None:
        """Start fetching files of a store."""
        for part in self.parts:
            part.expect(numbers, elsewhere)

    def bring(self, numbers: NDArray[np.int64]) -> None:
        """Start fetching these files of a store at once."""
        for part in self.parts:
            part.bring(numbers)

    def will_read(self, first: int, last: int, window: Window | None = None) -> None:
        """Read these files ahead."""
        for part in self.parts:
            part.will_read(first, last, window)

    # --- traits ---

    @property
    def store_is_cached(self) -> bool | None:
        """True if a cache keeps objects fetched from a store; None if all files are local."""
        known = [each for part in self.parts if (each := part.store_is_cached) is not None]
        return all(known) if known else None

    @property
    def sample_bytes(self) -> float | None:
        """Average bytes of the files of a sample."""
        sizes = [part.sample_bytes for part in self.parts]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    @property
    def own_code(self) -> tuple[Any, ...]:
        """User functions that make images."""
        return tuple(code for part in self.parts for code in part.own_code)

    @property
    def makes_samples(self) -> bool:
        """True if user code makes any of the images."""
        return any(part.makes_samples for part in self.parts)

    @property
    def draws(self) -> bool:
        """True if a sample depends on its generator."""
        return any(part.draws for part in self.parts)

    @property
    def decodes(self) -> bool:
        """True if ``ImageDecoder``s make all images."""
        return all(part.decodes for part in self.parts)

    def remedy(self, shape: tuple[int, ...]) -> str:
        """Advice on making arrays of unequal shapes equal."""
        return (
            "images of several sizes need an ImageDecoder with a size for each, or a transform "
            "that pads, crops or resizes them alike"
        )

    def way(self, transformed: bool) -> str:
        """Human-readable description of how samples are read."""
        return f"{len(self.parts)} files a sample: {self.parts[0].way(transformed)}"


def columns_of_list(items: Any, count: int) -> list[list[str]]:
    """Paths of each column in a list of tuples.

    Raises:
        TypeError: Not a list of tuples of ``count`` paths.
        ValueError: The list is empty.
    """
    rule = f"where must be {count} folders, a table, or a list of tuples of {count} files"
    if isinstance(items, (str, bytes, os.PathLike, dict)) or not hasattr(items, "__iter__"):
        raise TypeError(
            f"{rule} with decode=({'..., ' * (count - 1)}...), got {items!r:.80}: "
            "list(zip(images, masks)) makes pairs"
        )
    rows: list[list[str]] = []
    for place, item in enumerate(items):
        given = list(item) if isinstance(item, (tuple, list, np.ndarray)) else [item]
        if len(given) != count or not all(isinstance(each, (str, os.PathLike)) for each in given):
            raise TypeError(
                f"{rule}, got {item!r:.80} in place {place}: list(zip(images, masks)) makes pairs"
            )
        rows.append([os.fspath(each) for each in given])
    if not rows:
        raise ValueError("where must hold at least one sample, got a list of none")
    return [list(column) for column in zip(*rows)]


def columns_of_folders(folders: Sequence[Any]) -> list[list[str]]:
    """Paths of the images in each folder, matched by name without the ending.

    Raises:
        ValueError: A folder of a store, no images, or a name that a folder lacks.
    """
    roots = [os.fspath(folder) for folder in folders]
    if any(map(is_url, roots)):
        raise ValueError(
            "where must be folders of this machine to be matched by name: give the files of a "
            "store as a list of tuples"
        )
    found = [_by_stem(root) for root in roots]
    for root, names in zip(roots, found):
        if not names:
            raise ValueError(f"where must hold at least one image in each folder, got {root!r}")
    stems = found[0].keys()
    for root, names in zip(roots[1:], found[1:]):
        odd = sorted(stems ^ names.keys())
        if odd:
            shown = ", ".join(map(repr, odd[:_MOST_NAMED])) + ", ..." * (len(odd) > _MOST_NAMED)
            raise ValueError(
                f"where must be folders with images of the same names but for the endings, got "
                f"{len(odd)} in only one of {roots[0]!r} and {root!r} ({shown}): give others as a "
                "list of tuples of files"
            )
    return [[names[stem] for stem in stems] for names in found]


def _by_stem(root: str) -> dict[str, str]:
    """Paths by name below the folder, without the ending; sorted."""
    named: dict[str, str] = {}
    for folder, names in runs_below(root, ()):
        for name in filter(is_named_like_an_image, names):
            path = os.path.join(folder, name)
            stem = os.path.splitext(os.path.relpath(path, root))[0]
            if stem in named:
                raise ValueError(
                    f"where must be folders with one image of each name, got {named[stem]!r} and "
                    f"{path!r}: give a list of tuples of files"
                )
            named[stem] = path
    return {stem: named[stem] for stem in sorted(named)}


def paths_in(labels: Sequence[Any] | None) -> str | None:
    """First label of the first sample that looks like an image path, or None."""
    first = next(iter(labels or ()), None)
    for each in first if isinstance(first, (tuple, list)) else [first]:
        path = os.fspath(each) if isinstance(each, os.PathLike) else each
        if isinstance(path, str) and is_named_like_an_image(path):
            return path
    return None


def columns_of_table(paths: list[str], labels: Sequence[Any] | None, count: int) -> list[list[str]]:
    """Paths of each column in a table.

    Raises:
        ValueError: The table doesn't have ``count`` columns of paths.
    """
    rows: Iterator[Any] = iter(labels or ())
    others = [list(row) if isinstance(row, (tuple, list)) else [row] for row in rows]
    wrong = next((row for row in others if not all(isinstance(each, str) for each in row)), None)
    if not others or len(others[0]) != count - 1 or wrong is not None:
        raise ValueError(
            f"columns must name {count} columns of files for {count} decoders, as in "
            f'columns=("image", "mask"), got {1 + len(others[0] if others else ())} columns'
            + (f", of which one holds {wrong!r}" if wrong else "")
        )
    return [paths, *(list(column) for column in zip(*others))]
