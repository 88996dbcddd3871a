"""``ImageRows``: writes images of record files, and labels, straight into rows of a batch.

Raw arrays of one shape are gathered at once from all files that are alike (``strided``). The other
records, and encoded images, are located (``located``) and decoded into their rows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError, UnlikeError
from adapters.generators import RngOf, chosen
from adapters.images import size_of
from adapters.records import RecordFiles, Shard
from adapters.records.joined import ApartError, joined
from adapters.sources.contents import Images
from adapters.sources.located import Found, Located
from adapters.sources.rows import put_image, put_label
from adapters.sources.source import Leaf
from adapters.sources.strided import Strided, strided_of


class ImageRows:
    """Fills rows of batches. Thread-safe; what it finds is kept for this process alone.

    Args:
        files: The records.
        content: Decodes the records.
    """

    def __init__(self, files: RecordFiles, content: Images) -> None:
        self._files = files
        self._content = content
        self._located: Located | None = None

    @property
    def leaf(self) -> Leaf | None:
        """Shape and dtype of all arrays; None if not fixed."""
        decoder = self._content.decoder
        if decoder is not None and decoder.shape is not None:
            return decoder.shape, decoder.dtype
        self._files.check_open()
        return None if self._first is None else (self._first.shape, self._first.dtype)

    @functools.cached_property
    def _first(self) -> Strided | None:
        return strided_of(self._files.locate(0)[0], self._content)

    def fill(
        self,
        numbers: NDArray[np.int64],
        rng_of: RngOf | None,
        images: NDArray[Any],
        labels: NDArray[Any],
    ) -> list[tuple[int, Exception]]:
        """Write samples into rows.

        Args:
            numbers: Sample numbers, ``(rows,)``.
            rng_of: See ``Source.fill``.
            images: ``(rows, *shape)``, as in ``leaf``.
            labels: ``(rows,)`` or ``(rows, labels)``.

        Returns:
            Rows that couldn't be written, and why. A ``ContentError`` doesn't name its record yet.
        """
        decoder = self._content.decoder
        if decoder is None:
            done = self.gather(numbers, images, labels)
            if done.all():
                return []
        todo = numbers.argsort(kind="stable")
        if decoder is None:
            todo = todo[~done[todo]]
        located = self._located
        if located is None:
            located = self._located = Located(self._files, 1, [(labels.shape[1:], labels.dtype)])
        found = located.find(numbers[todo], todo, [labels])
        if decoder is not None and len(found.places) < len(todo):
            located.look(numbers[np.delete(todo, found.places)], self._content.names)
            found = located.find(numbers[todo], todo, [labels])
        failures = self._known(found, todo[found.places], numbers, rng_of, images)
        if len(found.places) == len(todo):
            return failures
        encoded: list[memoryview] = []
        wanted: list[int] = []
        for row in np.delete(todo, found.places).tolist():
            try:
                own = int(numbers[row])
                shard, number = self._files.locate(own)
                payload = shard.read(number)
                image, label = self._content.split(payload, shard.format)
                put_label(label, labels, row)
                located.note(own, payload, [image], [labels[row]])
                if decoder is None:
                    put_image(image, images, row)
            except UnlikeError as error:
                failures.append((row, error if _is_image(image) else error.damage))
                continue
            except Exception as error:
                failures.append((row, error))
                continue
            encoded.append(image)
            wanted.append(row)
        if decoder is not None:
            failed = decoder.decode_rows(encoded, chosen(rng_of, wanted), wanted, images)
            failures += ((wanted[place], error) for place, error in failed)
        return failures

    def _known(
        self,
        found: Found,
        rows: NDArray[np.int64],
        numbers: NDArray[np.int64],
        rng_of: RngOf | None,
        images: NDArray[Any],
    ) -> list[tuple[int, Exception]]:
        """Write images whose places are known; see ``fill``."""
        decoder, failures = self._content.decoder, []
        (pieces,) = found.pieces
        if decoder is not None:
            failed = decoder.decode_pieces(
                found.buffers, pieces, chosen(rng_of, rows), rows, images
            )
            return [(int(rows[place]), error) for place, error in failed]
        for row, (buffer, begin, size) in zip(rows.tolist(), pieces.tolist()):
            try:
                put_image(found.buffers[buffer][begin : begin + size], images, row)
            except Exception as error:
                failures.append((row, error))
        return failures

    def gather(
        self, numbers: NDArray[np.int64], images: NDArray[Any], labels: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """Gather rows at once; return a mask of those that were written."""
        self._files.check_open()
        numbers = self._files.in_order(numbers)
        try:
            return self._gathered(self._units, numbers, images, labels)
        except ApartError:
            self._units = units = self._parted(self._files.shards)
            return self._gathered(units, numbers, images, labels)

    @staticmethod
    def _gathered(
        units: Sequence[tuple[int, Strided | None]],
        numbers: NDArray[np.int64],
        images: NDArray[Any],
        labels: NDArray[Any],
    ) -> NDArray[np.bool_]:
        if len(units) == 1:
            _, strided = units[0]
            if strided is None or not strided.fits(images, labels):
                return np.zeros(len(numbers), bool)
            return strided.gather(numbers, images, labels)
        firsts = np.cumsum([0, *(records for records, _ in units)])
        places = np.searchsorted(firsts, numbers, "right") - 1
        right = np.zeros(len(numbers), bool)
        for place in np.unique(places).tolist():
            _, strided = units[place]
            rows = np.flatnonzero(places == place)
            if strided is None or not strided.fits(images, labels):
                continue
            part = np.empty((len(rows), *images.shape[1:]), images.dtype)
            own = np.empty((len(rows), *labels.shape[1:]), labels.dtype)
            right[rows] = strided.gather(numbers[rows] - firsts[place], part, own)
            images[rows], labels[rows] = part, own
        return right

    @functools.cached_property
    def _units(self) -> list[tuple[int, Strided | None]]:
        """Record counts of the files, and their matrices; similar neighbours are joined."""
        return self._parted(joined(self._files.shards))

    def _parted(self, shards: Sequence[Shard]) -> list[tuple[int, Strided | None]]:
        units: list[tuple[int, Strided | None]] = []
        for unit in shards:
            whole = strided_of(unit, self._content)
            if whole is not None or len(unit.parts) == 1:
                units.append((len(unit), whole))
            else:
                units += [(len(part), strided_of(part, self._content)) for part in unit.parts]
        return units


def _is_image(encoded: memoryview) -> bool:
    """True if an image begins here; after a header with a damaged label count, none does."""
    try:
        size_of(encoded)
    except ContentError:
        return False
    return True
