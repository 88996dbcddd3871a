"""``ImageRows``: writes images of record files, and labels, straight into rows of a batch.

The kernel's parser (``recordcolumns``) writes raw arrays and labels, and says where encoded images
lie, which are then decoded into their rows. Other records, and all of them without the kernel, are
read one by one.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError, RecordError, UnlikeError
from adapters.generators import RngOf, chosen
from adapters.images import kernel, npy, size_of
from adapters.records import RecordFiles, Shard, example, irheader, recordio
from adapters.sources.contents import Images
from adapters.sources.recordcolumns import (
    CONTENT,
    LABELS,
    LEFT,
    OWN_LABEL,
    Column,
    Parsed,
    RecordColumns,
)
from adapters.sources.rows import put_image, put_label
from adapters.sources.source import Leaf

# Damaged records to skip in search of one that shows what they are like.
_TRIES = 100
_NUMBERS = {
    np.dtype(np.int64): example.INT64_LIST,
    np.dtype(np.float64): example.FLOAT_LIST,
    np.dtype(np.float32): example.FLOAT_LIST,
}


class ImageRows:
    """Fills rows of batches. Thread-safe; for this process alone.

    Args:
        files: The records.
        content: Decodes the records.
    """

    def __init__(self, files: RecordFiles, content: Images) -> None:
        self._files = files
        self._content = content
        self._columns: tuple[Leaf, RecordColumns | None] | None = None

    @property
    def leaf(self) -> Leaf | None:
        """Shape and dtype of all arrays; None if not fixed."""
        decoder = self._content.decoder
        if decoder is not None and decoder.shape is not None:
            return decoder.shape, decoder.dtype
        self._files.check_open()
        return None if self._raw is None else (self._raw[0].shape, self._raw[0].dtype)

    @functools.cached_property
    def _raw(self) -> tuple[NDArray[Any], bytes] | None:
        """First raw array, and its header, if all records of its file are equally long."""
        shard = self._files.locate(0)[0]
        if self._content.decoder is not None or not _are_equally_long(shard):
            return None
        for number in range(min(len(shard), _TRIES)):
            try:
                encoded, _ = self._content.split(shard.read(number), shard.format)
                if bytes(encoded[: len(npy.MAGIC)]) != npy.MAGIC:
                    continue
                array = npy.read(encoded)
            except (ContentError, RecordError):
                continue  # Damaged; the next one may do.
            if not array.size or not array.flags.c_contiguous:
                return None
            return array.copy(), bytes(encoded[: len(encoded) - array.nbytes])
        return None

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
        self._files.check_open()
        decoder = self._content.decoder
        failures: list[tuple[int, Exception]] = []
        todo = numbers.argsort(kind="stable")
        columns = self._columns_for((labels.shape[1:], labels.dtype))
        if columns is not None:
            places = np.empty((len(numbers), 3), np.int64)
            first = images if decoder is None else places
            wrong, buffers = self._parsed(columns, numbers, todo, first, labels)
            done = todo if wrong is None else todo[~wrong]
            todo = todo[:0] if wrong is None else todo[wrong]
            if decoder is not None and len(done):
                failed = decoder.decode_pieces(
                    buffers, places[done], chosen(rng_of, done), done, images
                )
                failures += ((int(done[place]), error) for place, error in failed)
        if not len(todo):
            return failures
        encoded: list[memoryview] = []
        wanted: list[int] = []
        for row in todo.tolist():
            try:
                shard, number = self._files.locate(int(numbers[row]))
                image, label = self._content.split(shard.read(number), shard.format)
                put_label(label, labels, row)
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

    def _parsed(
        self,
        columns: RecordColumns,
        numbers: NDArray[np.int64],
        order: NDArray[np.int64],
        first: NDArray[Any],
        labels: NDArray[Any],
    ) -> Parsed:
        """Parse records in this order of rows; the mask of wrong ones is in this order, too."""
        own = labels
        if labels.dtype == np.float64:  # Stored as float32.
            own = np.empty(labels.shape, "<f4")
        wrong, buffers = columns.parse(numbers[order], order, (first, own))
        if own is not labels:
            with np.errstate(invalid="ignore"):  # NaN, or a row that wasn't written.
                labels[...] = own
        if self._content.moves and labels.ndim > 1:
            refused = np.array([irheader.are_objects(label) for label in labels[order]], bool)
            wrong = refused if wrong is None else wrong | refused
        return wrong, buffers

    def _columns_for(self, label: Leaf) -> RecordColumns | None:
        """Columns of an image and a label like this; None if each record is read by itself."""
        if self._columns is None or self._columns[0] != label:
            self._columns = label, self._made(*label)
        return self._columns[1]

    def _made(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> RecordColumns | None:
        module, (image, label) = kernel.load(), self._content.names
        if module is None or dtype not in _NUMBERS or len(shape) > 1 or 0 in shape:
            return None
        if self._content.decoder is not None:
            first = Column(image.encode(), example.BYTES_LIST, 1, CONTENT, is_place=True)
        elif self._raw is not None:
            array, prefix = self._raw
            first = Column(image.encode(), example.BYTES_LIST, array.nbytes, CONTENT, prefix=prefix)
        else:
            return None
        part = LABELS if shape else OWN_LABEL
        second = Column(label.encode(), _NUMBERS[dtype], sum(shape) or 1, part)

        def kind_of(shard: Shard) -> int:
            # One value of an Example is a number, not an array.
            is_other = shape == (1,) and shard.format != recordio.NAME
            return LEFT if is_other else shard.codec.kernel_kind

        return RecordColumns(module, self._files, [first, second], kind_of)


def _are_equally_long(shard: Shard) -> bool:
    """True if the records of a file take the same number of bytes each."""
    try:
        first, last = int(shard.offsets[0]), int(shard.offsets[-1])
        stride = shard.codec.end(shard.storage, first) - first
        is_last = shard.codec.end(shard.storage, last) - last == stride
    except (IndexError, RecordError):
        return False
    return is_last and bool((np.diff(shard.offsets) == stride).all())


def _is_image(encoded: memoryview) -> bool:
    """True if an image begins here; after a header with a damaged label count, none does."""
    try:
        size_of(encoded)
    except ContentError:
        return False
    return True
