"""``Replay``: one training batch, computed again.

A batch is a function of the source, the seed, the epoch and its index, so no log of the training is
needed. Replaying doesn't disturb a training in progress.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.alignment import aligned_empty
from adapters.batch.collate import as_leaf
from adapters.batch.plan import BatchKey
from adapters.batch.replacement import replacements_noted
from adapters.batch.sourceplan import SourcePlan
from adapters.errors import ContentError, RecordError
from adapters.generators import DECODE, Place, generator
from adapters.images import decode, stored
from adapters.sources.source import Origin
from adapters.structure import flatten
from adapters.viewing.images import (
    RGB,
    contact_sheet,
    framed,
    image_in,
    images_in,
    save,
    thumbnails,
)
from adapters.viewing.peek import aligned


@dataclass(frozen=True)
class Replay:
    """The result of ``seq.replay(epoch, batch)``; ``print`` shows it as a table.

    Args:
        epoch: The epoch of the batch.
        index: The index of the batch: ``seq[index]`` in that epoch.
        batch: The batch as the model receives it.
        numbers: The numbers of its samples, int64 ``(batch,)``, those that ``on_error="skip"`` took
            included; for a source of whole batches, the number of the batch.
        origins: The file, record and crop of each sample.
        fetched: Maps a sample's number to the sample before user transforms.
        replaced: The number of the sample that ``on_error`` replaced, by row. A function's row has
            this number, too, in ``numbers``.
    """

    epoch: int
    index: int
    batch: Any
    numbers: NDArray[np.int64]
    origins: list[Origin]
    fetched: Callable[[int], Any] = field(repr=False, compare=False)
    replaced: dict[int, int] = field(default_factory=dict)

    @property
    def labels(self) -> list[Any] | None:
        """The label of each sample; None unless the batch is ``(x, y, ...)`` with y per sample."""
        if not (isinstance(self.batch, (tuple, list)) and len(self.batch) > 1):
            return None
        rows = _leaves(self.batch[1])
        if len(rows) != 1 or rows[0].ndim not in (1, 2) or len(rows[0]) != len(self.numbers):
            return None
        return [row.tolist() for row in rows[0]]

    def before(self, row: int) -> Any:
        """The sample in a row of the batch, before cropping and transforms.

        Returns:
            The whole image if the source stores images: uint8 ``(height, width, 3)``, or with its
            original dtype and channels if it can't be decoded as such. Otherwise the source's
            sample.

        Raises:
            IndexError: The batch has no such row.
        """
        count = len(self.numbers)
        if not -count <= row < count:
            raise IndexError(f"row must be in range({-count}, {count}), got {row}")
        encoded = self.origins[row].encoded
        if encoded is not None:
            try:
                return decode(encoded)
            except ContentError:  # More than 8 bits, or more channels.
                return stored(encoded)
        return self.fetched(int(self.numbers[row]))

    def sheet(self, path: str | os.PathLike[str]) -> Path:
        """Write a contact sheet: each sample before the transforms and, below it, after them.

        A red frame marks the crop.

        Args:
            path: The PNG file.

        Returns:
            The path.

        Raises:
            OSError: The file can't be written.
            ValueError: The batch has no images.
        """
        found = map(images_in, _leaves(self.batch))
        images = next((each for each in found if each is not None), None)
        if images is None:
            raise ValueError(
                "the batch must have an array of images for a sheet, (batch, height, width) with "
                "or without 1, 3 or 4 channels: print(replay) shows what it has"
            )
        after = thumbnails(list(images))
        before = self._thumbnails_before(len(after))
        across = math.ceil(math.sqrt(2 * len(after)))
        rows: list[list[RGB | None]] = []
        for start in range(0, len(after), across):
            rows += [before[start : start + across], [*after[start : start + across]]]
        save(path, contact_sheet(rows))
        return Path(path)

    def _thumbnails_before(self, count: int) -> list[RGB | None]:
        """Thumbnails of the samples before the transforms; None for a sample without an image."""
        images = [self._image_before(row) for row in range(count)]
        drawn = iter(thumbnails([image for image in images if image is not None]))
        tiles: list[RGB | None] = []
        for row, image in enumerate(images):
            tile = None if image is None else next(drawn)
            crop = self.origins[row].crop if row < len(self.origins) else None
            if tile is not None and crop is not None:
                height, width = crop.resized or crop.image
                box = crop.top / height, crop.left / width, crop.height / height, crop.width / width
                tile = framed(tile, box)
            tiles.append(tile)
        return tiles

    def _image_before(self, row: int) -> NDArray[Any] | None:
        if row >= len(self.numbers):
            return None
        try:
            found = map(image_in, _leaves(self.before(row)))
        except (ContentError, RecordError):  # Damaged; on_error replaced it in the batch.
            return None
        return next((each for each in found if each is not None), None)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        leaves, count = _leaves(self.batch), len(self.numbers)
        shapes = ", ".join(f"{leaf.dtype} {leaf.shape}" for leaf in leaves)
        if count == 1 and leaves:  # Of a source of whole batches, perhaps.
            count = (leaves[0].shape or (1,))[0]
        yield f"batch {self.index} of epoch {self.epoch}: {count} samples, {shapes}"
        labels = self.labels or [""] * len(self.numbers)
        table = [("row", "sample", "label", "file", "record", "offset", "drawn", "on_error")]
        for row, (number, origin) in enumerate(zip(self.numbers.tolist(), self.origins)):
            place = (origin.file, origin.record, origin.offset)
            on_error = None
            if (before := self.replaced.get(row)) is not None:
                on_error = f"in place of {before}" if before != number else "made by the function"
            cells = (row, number, labels[row], *place, origin.drawn, on_error)
            table.append(tuple("" if cell is None else str(cell) for cell in cells))  # type: ignore[arg-type]
        columns = [column for column in zip(*table) if any(column[1:])]
        yield from aligned([*zip(*columns)])


def _leaves(tree: Any) -> list[NDArray[Any]]:
    return [as_leaf(leaf) for leaf in flatten(tree)[0]]


def replay_batch(plan: SourcePlan, key: BatchKey, now: int) -> Replay:
    """Compute a batch of a plan again; ``now`` is the epoch of a source that manages its own."""
    epoch = key.epoch
    if plan.changes_between_epochs and epoch != now:
        raise ValueError(
            f"epoch must be the current one, {now}, as the source, or a hook of the sequence, "
            f"changes what the batches are between epochs; got {epoch}"
        )
    source, numbers = plan.source, plan.order.batch(*key.order_arguments)
    return replayed(
        key,
        plan.seed,
        numbers[:1] if source.whole_batches else numbers,
        lambda: plan.batch(key, aligned_empty).batch,
        functools.partial(plan.fetched, epoch),
        lambda number: source.origin(number, generator(plan.seed, epoch, number, DECODE)),
    )


def replayed(
    key: BatchKey,
    seed: int,
    numbers: NDArray[np.int64],
    compute: Callable[[], Any],
    fetch: Callable[[int], Any],
    origin: Callable[[int], Origin],
    run: int = 0,
) -> Replay:
    """Compute a batch again; ``run`` is that of the place in which a sample is fetched."""
    with replacements_noted() as noted:
        batch = compute()
    named = numbers.tolist()
    replaced = {row: number for row, number in enumerate(named) if number in noted}
    used = [number if (other := noted.get(number)) is None else other for number in named]

    def fetched(number: int) -> Any:
        with Place(seed, key.epoch, key.index) as place:
            place.sample(number, run)
            return fetch(number)

    numbers = np.array(used, np.int64)
    return Replay(key.epoch, key.index, batch, numbers, list(map(origin, used)), fetched, replaced)
