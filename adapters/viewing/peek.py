"""``peek``: the first samples of some batches, as a contact sheet, a table or both."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.batch.collate import as_leaf
from adapters.structure import as_arrays, flatten, is_numbers, map_leaves
from adapters.viewing.images import contact_sheet, images_in, save, thumbnails

# Samples shown per batch, and characters per table cell.
_SHOWN_SAMPLES = 8
_SHOWN_CHARACTERS = 60
# Tiles per row for samples without a batch.
_ACROSS = 8


class Peek:
    """The first samples of some batches, as a contact sheet and a table.

    A notebook shows a contact sheet if the batches hold images, and a table otherwise; ``print``
    shows the table. ``images.py`` defines which arrays are images and how values become pixels.

    Args:
        batches: Structures of arrays.
    """

    def __init__(self, batches: Iterable[Any]) -> None:

        def first(leaf: Any) -> Any:
            return leaf[:_SHOWN_SAMPLES].copy() if _has_rows(leaf) else leaf

        self.batches = [map_leaves(first, as_arrays(batch)) for batch in batches]
        """The first samples of each batch."""

    @classmethod
    def of_samples(cls, samples: Iterable[Any]) -> Peek:
        """Make a peek of single samples, whose sizes may differ."""
        return cls(map_leaves(lambda leaf: as_leaf(leaf)[None], each) for each in samples)

    def png(self) -> bytes | None:
        """The contact sheet as a PNG, one row per batch; None if there are no images."""
        rows = [row for batch in self.batches if (row := _row(batch))]
        if not rows:
            return None
        flat = [each for row in rows for each in row]
        tiles = thumbnails([image for image, _ in flat])
        alone = all(len(row) == 1 for row in rows)
        lengths = [_ACROSS] * -(-len(flat) // _ACROSS) if alone else [len(row) for row in rows]
        remaining = iter(tiles)
        sheet = [list(itertools.islice(remaining, length)) for length in lengths]
        return contact_sheet(sheet, [caption for _, caption in flat])

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write the contact sheet to a PNG file and return its path.

        Raises:
            OSError: The file can't be written.
            ValueError: The batches hold no images.
        """
        sheet = self.png()
        if sheet is None:
            raise ValueError(
                "path is for a contact sheet, and the batches hold no images (uint8 or float, "
                "(batch, height, width, channels) or (batch, channels, height, width)): print the "
                "table instead"
            )
        save(path, sheet)
        return os.fspath(path)

    def table(self) -> list[list[str]]:
        """A header row, then one row per sample.

        Members that first appear in a later sample get the last columns.
        """
        columns: dict[str, None] = {}
        rows: list[tuple[list[str], dict[str, str]]] = []
        for number, batch in enumerate(self.batches):
            members = {name or "array": leaf for name, leaf in named_leaves(batch)}
            columns.update(dict.fromkeys(members))
            count = min((len(leaf) for leaf in members.values() if _has_rows(leaf)), default=1)
            for sample in range(count):
                shown = {
                    name: _shown(leaf[sample] if _has_rows(leaf) else leaf)
                    for name, leaf in members.items()
                }
                rows.append(([str(number), str(sample)], shown))
        header = ["batch", "sample", *columns]
        body = [[*place, *(shown.get(name, "") for name in columns)] for place, shown in rows]
        return [header, *body] if body else []

    def __str__(self) -> str:
        return "\n".join(aligned(self.table()))

    __repr__ = __str__

    def _repr_png_(self) -> bytes | None:
        return self.png()


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of text with the cells of each column below each other."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip()


def _has_rows(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.ndim > 0


def _row(batch: Any) -> list[tuple[NDArray[Any], str]]:
    """The images of a batch with captions: the other members that are scalar per sample."""
    leaves, _ = flatten(batch)
    found = [(place, images_in(leaf)) for place, leaf in enumerate(leaves)]
    place, images = next(((p, i) for p, i in found if i is not None), (0, None))
    if images is None:
        return []
    others = [leaf for other, leaf in enumerate(leaves) if other != place and _has_rows(leaf)]
    captions = [
        ", ".join(
            _shown(leaf[sample])
            for leaf in others
            if sample < len(leaf) and leaf[sample : sample + 1].size <= 1
        )
        for sample in range(len(images))
    ]
    return list(zip(images, captions))


def named_leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over the leaves of a sample or batch with names such as ``[0].tokens``."""
    if isinstance(tree, Mapping):
        for key, member in tree.items():
            yield from named_leaves(member, f"{name}.{key}" if name else str(key))
    elif isinstance(tree, tuple) or (isinstance(tree, list) and not is_numbers(tree)):
        for key, member in zip(getattr(tree, "_fields", range(len(tree))), tree):
            yield from named_leaves(member, f"{name}[{key}]")
    elif tree is not None:
        yield name, tree


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 8:
        if value.dtype.kind in "biuf":
            low, high = value.min(), value.max()
            return f"{value.dtype}{value.shape} {_number(low)}..{_number(high)}"
        return f"{value.dtype}{value.shape}"
    shown = str(value.tolist()) if isinstance(value, np.ndarray) else _number(value)
    return shown[:_SHOWN_CHARACTERS]


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)
