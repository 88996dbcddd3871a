"""Rows of a batch from records: ``ImageRows`` and ``FeatureRows``.

The kernel's parser (``recordparser``) writes raw arrays and numbers, and says where encoded images
lie, which are then decoded into their rows. It writes what is stored: bytes, float32 or int64;
fields of other dtypes are converted here, all rows at once. Records that it leaves, and all of them
without the kernel, are read one by one.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError, RecordError, UnlikeError
from adapters.generators import RngOf, chosen
from adapters.images import ImageDecoder, kernel, npy, size_of
from adapters.images import decode as decode_image
from adapters.records import RecordFiles, Shard, example, irheader, recordio
from adapters.sources import examples
from adapters.sources.decoders import Images
from adapters.sources.examples import Examples, in_header, misfits, of_raw, put, told
from adapters.sources.features import Field
from adapters.sources.recordparser import (
    CONTENT,
    ID,
    ID2,
    LABEL,
    LABELS,
    LEFT,
    NOWHERE,
    OWN_LABEL,
    Column,
    RecordParser,
)
from adapters.sources.source import Leaf

Places = NDArray[np.int64] | None

# Damaged records to skip in search of one that shows what they are like.
_TRIES = 100
_PARTS = {examples.LABEL: LABEL, examples.ID: ID, examples.ID2: ID2}
_KINDS = {
    np.dtype(np.int64): example.INT64_LIST,
    np.dtype(np.float64): example.FLOAT_LIST,
    np.dtype(np.float32): example.FLOAT_LIST,
}


class _Parsed:
    """Parser of fields, and the conversion of what it writes.

    Args:
        module: The kernel.
        files: The records.
        fields: The fields, in column order; of one shape each, or images.
        columns: The parser's column of each field.
        labels: Fields whose rows mustn't be boxes, see ``irheader.refuse_objects``.
        kind_of: See ``RecordParser``.
    """

    def __init__(
        self,
        module: ModuleType,
        files: RecordFiles,
        fields: Sequence[Field],
        columns: Sequence[Column],
        labels: Sequence[int],
        kind_of: Callable[[Shard], int],
    ) -> None:
        self._fields = list(fields)
        self._labels = list(labels)
        self._images = [place for place, field in enumerate(fields) if field.decoder is not None]
        self._stored = {
            place: stored
            for place, (field, column) in enumerate(zip(fields, columns))
            if not (column.is_place or column.prefix)
            and ((stored := _stored(field)) != field.dtype or stored.kind == "b")
        }
        """Dtypes of the fields that are converted."""
        self._is_direct = not (self._images or self._stored or self._labels)
        self._parser = RecordParser(module, files, columns, kind_of)

    def parse(
        self, numbers: NDArray[np.int64], into: Places, rows: Sequence[NDArray[Any]]
    ) -> tuple[
        NDArray[np.bool_] | None, Sequence[memoryview | bytes], dict[int, NDArray[np.int64]]
    ]:
        """Write the fields of these records, except for images.

        Args:
            numbers: Record numbers.
            into: Row of each record; None for one after another.
            rows: An array for each field, ``(rows, *shape)``.

        Returns:
            A mask of the records to read one by one, which reports errors, None if there are none;
            the memory of the files; and, for each image field, where a row's image lies: ``(rows,
            3)``, index of the memory, first byte and size.
        """
        if self._is_direct:
            return *self._parser.parse(numbers, into, rows), {}
        own, count = list(rows), len(rows[0])
        pieces = {place: np.empty((count, 3), np.int64) for place in self._images}
        for place, piece in pieces.items():
            own[place] = piece
        for place, dtype in self._stored.items():
            own[place] = np.empty(rows[place].shape, dtype)
        wrong, buffers = self._parser.parse(numbers, into, own)
        written: Any = slice(None) if into is None else into
        masks = [] if wrong is None else [wrong]
        for place in self._labels:
            masks.append(np.array(list(map(irheader.are_objects, own[place][written])), bool))
        for place in self._stored:
            misfit = _convert(self._fields[place], own[place][written], rows[place], written)
            masks += [] if misfit is None else [misfit]
        return functools.reduce(np.logical_or, masks) if masks else None, buffers, pieces


class RecordRows(abc.ABC):
    """Fills rows of batches. Thread-safe; for this process alone.

    Args:
        files: The records.
        decoders: Decoders of the fields that are encoded images, by column number.
    """

    inorder = True
    """True if records are parsed in the order of the files."""

    def __init__(self, files: RecordFiles, decoders: dict[int, ImageDecoder]) -> None:
        self._files = files
        self._decoders = decoders

    @abc.abstractmethod
    def parser(self, rows: Sequence[NDArray[Any]]) -> _Parsed | None:
        """Return the parser for such rows; None if each record must be read by itself."""

    @abc.abstractmethod
    def put(
        self, payload: memoryview, format: str, row: int, rows: Sequence[NDArray[Any]]
    ) -> list[memoryview]:
        """Write the fields of one record, except for encoded images, which are returned."""

    def with_field(self, column: int, error: ContentError) -> ContentError:
        """Add the name of an image's field to an error."""
        return error

    def fill(
        self,
        numbers: NDArray[np.int64],
        rng_of: RngOf | None,
        rows: Sequence[NDArray[Any]],
        places: Places = None,
    ) -> list[tuple[int, Exception]]:
        """Write records into rows; see ``Source.fill``. Errors don't name their record yet."""
        self._files.check_open()
        parser, order = self.parser(rows), None
        failures: dict[int, Exception] = {}
        if parser is None or self.inorder:
            order = numbers.argsort(kind="stable")
        if parser is None:
            assert order is not None
            self._one_by_one(order, numbers, rng_of, rows, places, failures)
            return list(failures.items())
        wanted, into = numbers, places
        if order is not None:
            wanted, into = numbers[order], order if places is None else places[order]
        wrong, buffers, pieces = parser.parse(wanted, into, rows)
        if wrong is None and not pieces:
            return []
        inorder = np.arange(len(numbers)) if order is None else order
        done = inorder if wrong is None else inorder[~wrong]
        own = done if places is None else places[done]
        for column, decoder in self._decoders.items() if len(done) else ():
            rng = chosen(rng_of, done)
            failed = decoder.decode_pieces(buffers, pieces[column][own], rng, own, rows[column])
            self._note(failures, column, done, failed)
        if wrong is not None:
            self._one_by_one(inorder[wrong], numbers, rng_of, rows, places, failures)
        return list(failures.items())

    def _one_by_one(
        self,
        todo: NDArray[np.int64],
        numbers: NDArray[np.int64],
        rng_of: RngOf | None,
        rows: Sequence[NDArray[Any]],
        places: Places,
        failures: dict[int, Exception],
    ) -> None:
        """Read records one after another, and write their rows."""
        wanted: list[int] = []
        into: list[int] = []
        encoded: list[list[memoryview]] = []
        for at in todo.tolist():
            row = at if places is None else int(places[at])
            try:
                shard, number = self._files.locate(int(numbers[at]))
                images = self.put(shard.read(number), shard.format, row, rows)
            except Exception as error:
                failures[at] = error
                continue
            encoded.append(images)
            wanted.append(at)
            into.append(row)
        for (column, decoder), group in zip(self._decoders.items(), zip(*encoded)):
            failed = decoder.decode_rows(group, chosen(rng_of, wanted), into, rows[column])
            self._note(failures, column, wanted, failed)

    def _note(
        self,
        failures: dict[int, Exception],
        column: int,
        wanted: Sequence[int] | NDArray[np.int64],
        failed: Sequence[tuple[int, Exception]],
    ) -> None:
        """Record the first failure of each sample."""
        for at, error in failed:
            known = self.with_field(column, error) if isinstance(error, ContentError) else error
            failures.setdefault(int(wanted[at]), known)


class FeatureRows(RecordRows):
    """Fills rows with typed features of one shape each, and images.

    Args:
        files: The records.
        content: Their features.
    """

    def __init__(self, files: RecordFiles, content: Examples) -> None:
        decoders = {at: each.decoder for at, each in enumerate(content.fields) if each.decoder}
        super().__init__(files, decoders)
        self._content = content
        self._parser = self._made()
        self.inorder = bool(decoders)

    def parser(self, rows: Sequence[NDArray[Any]]) -> _Parsed | None:
        """Return the parser; None if each record must be read by itself."""
        return self._parser

    def put(
        self, payload: memoryview, format: str, row: int, rows: Sequence[NDArray[Any]]
    ) -> list[memoryview]:
        """Write the features of one record."""
        values = self._content.values(payload, format)
        for column, into in enumerate(rows):
            if column not in self._decoders:
                into[row] = values[column]
        return [values[column] for column in self._decoders]

    def with_field(self, column: int, error: ContentError) -> ContentError:
        """Add the name of an image's feature to an error."""
        return told(self._content.fields[column], error)

    def _made(self) -> _Parsed | None:
        module, fields = kernel.load(), self._content.fields
        # If only some files are RecordIO, their records are read one by one.
        has_headers = all(shard.format == recordio.NAME for shard in self._files.shards)
        if has_headers:
            try:
                fields = in_header(fields)
            except ContentError:  # May be Examples; if not, reading one by one reports it.
                return None
        if module is None or any(_default_row(field) is None for field in fields):
            return None
        columns = [_column(field, has_headers) for field in fields]
        labels = [
            place
            for place, field in enumerate(fields)
            if self._content.moves
            and has_headers
            and field.key == examples.LABEL
            and field.part_of is None
            and field.shape
        ]

        def kind_of(shard: Shard) -> int:
            is_header = shard.format == recordio.NAME
            return shard.codec.kernel_kind if is_header == has_headers else LEFT

        return _Parsed(module, self._files, fields, columns, labels, kind_of)


class ImageRows(RecordRows):
    """Fills rows with an image and its label.

    Args:
        files: The records.
        content: Decodes the records.
    """

    def __init__(self, files: RecordFiles, content: Images) -> None:
        super().__init__(files, {} if content.decoder is None else {0: content.decoder})
        self._content = content
        self._parser: tuple[Leaf, _Parsed | None] | None = None

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

    def parser(self, rows: Sequence[NDArray[Any]]) -> _Parsed | None:
        """Return the parser for labels like these; None if each record is read by itself."""
        label = rows[1].shape[1:], rows[1].dtype
        if self._parser is None or self._parser[0] != label:
            self._parser = label, self._made(*label)
        return self._parser[1]

    def put(
        self, payload: memoryview, format: str, row: int, rows: Sequence[NDArray[Any]]
    ) -> list[memoryview]:
        """Write label and raw array of one record."""
        encoded, label = self._content.split(payload, format)
        try:
            _put_label(label, rows[1], row)
            if self._content.decoder is not None:
                return [encoded]
            _put_image(encoded, rows[0], row)
        except UnlikeError as error:
            # After a header with a damaged label count, no image begins.
            raise (error if _is_image(encoded) else error.damage) from None
        return []

    def _made(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Parsed | None:
        module, (image, label), decoder = kernel.load(), self._content.names, self._content.decoder
        if module is None or dtype not in _KINDS or len(shape) > 1 or 0 in shape:
            return None
        if decoder is not None:
            first = Column(image.encode(), example.BYTES_LIST, 1, CONTENT, is_place=True)
        elif self._raw is not None:
            array, prefix = self._raw
            first = Column(image.encode(), example.BYTES_LIST, array.nbytes, CONTENT, prefix=prefix)
        else:
            return None
        part = LABELS if shape else OWN_LABEL
        second = Column(label.encode(), _KINDS[dtype], sum(shape) or 1, part)
        fields = [
            Field(image, first.name, first.kind, np.dtype(np.uint8), decoder=decoder),
            Field(label, second.name, second.kind, dtype, shape),
        ]

        def kind_of(shard: Shard) -> int:
            # One value of an Example is a number, not an array.
            is_other = shape == (1,) and shard.format != recordio.NAME
            return LEFT if is_other else shard.codec.kernel_kind

        labels = [1] if self._content.moves and shape else []
        return _Parsed(module, self._files, fields, [first, second], labels, kind_of)


def _column(field: Field, has_headers: bool) -> Column:
    part = _PARTS.get(field.key, CONTENT) if has_headers else NOWHERE
    if field.decoder is not None:
        return Column(field.key, example.BYTES_LIST, 1, part, is_place=True)
    count = field.count * (1 if field.raw is None else field.raw.itemsize)
    return Column(field.key, field.kind, count, part, default=_default_row(field) or None)


def _stored(field: Field) -> np.dtype[Any]:
    """Dtype that the kernel writes for a feature."""
    if field.raw is not None:
        return field.raw
    return np.dtype(np.int64 if field.kind == example.INT64_LIST else "<f4")


def _default_row(field: Field) -> bytes | None:
    """Bytes that it writes for a missing feature, empty if none; None if it can't."""
    if field.default is None or field.decoder is not None:
        return b""
    with np.errstate(all="ignore"):
        row = np.ascontiguousarray(field.default.astype(_stored(field)))
        same = row.astype(field.dtype).tobytes() == field.default.tobytes()
    return row.tobytes() if same else None


def _convert(
    field: Field, stored: NDArray[Any], column: NDArray[Any], rows: Any
) -> NDArray[np.bool_] | None:
    """Convert stored values into rows of a column; mask of those that don't fit, None if none."""
    if stored.dtype.kind == "b":
        column[rows] = of_raw(field, stored.view(np.uint8))
        return None
    wrong = misfits(field, stored)
    with np.errstate(invalid="ignore"):  # NaN, or a row that wasn't written.
        put(stored, column, rows)
    return None if wrong is None else np.any(wrong.reshape(len(wrong), -1), axis=1)


def _put_label(label: Any, labels: NDArray[Any], row: int) -> None:
    """Write a label into its row, if shape and dtype are as expected."""
    # Single numbers. Worth it: 25 instead of 35 us for an image of 32x32 in RecordIO, decoded, and
    # 35 instead of 38 in TFRecord (2 cores, CPU time, 2026-11).
    if type(label) is int and labels.ndim == 1 and labels.dtype == np.int64:
        labels[row] = label
        return
    if type(label) is float and labels.ndim == 1 and labels.dtype.kind == "f":
        labels[row] = label
        if labels[row] == label:
            return
    array = np.asarray(label)
    if array.shape != labels.shape[1:]:
        raise UnlikeError(
            f"a label of shape {labels.shape[1:]}",
            f"shape {array.shape}; labels that differ need collate=, such as pad(), or a transform",
        )
    labels[row] = array
    if not np.array_equal(labels[row], array, equal_nan=array.dtype.kind == "f"):
        raise UnlikeError(f"a label of {labels.dtype}", f"{label!r}")


def _put_image(encoded: memoryview, images: NDArray[Any], row: int) -> None:
    """Write an image into its row, if shape and dtype are as expected."""
    array = decode_image(encoded)
    if array.shape != images.shape[1:] or array.dtype != images.dtype:
        raise ContentError(f"{images.dtype} {images.shape[1:]}", f"{array.dtype} {array.shape}")
    images[row] = array


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
    """True if an image begins here."""
    try:
        size_of(encoded)
    except ContentError:
        return False
    return True
