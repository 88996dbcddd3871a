"""Rows of a batch from records: ``feature_rows`` and ``image_rows`` make a ``RecordRows``.

The kernel's parser (``recordparser``) writes raw arrays and numbers, and says where encoded images
lie, which are then decoded into their rows. Records that it leaves, and all of them without the
kernel, are read one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError, RecordError, UnlikeError
from adapters.generators import RngOf, chosen
from adapters.images import ImageDecoder, kernel, npy, size_of
from adapters.images import decode as decode_image
from adapters.records import RecordFiles, Shard, example
from adapters.sources import examples, recordparser
from adapters.sources.decoders import Images
from adapters.sources.examples import Examples, in_header, named_error
from adapters.sources.features import Field
from adapters.sources.recordparser import KernelColumn, RecordParser, column_of, takes_default
from adapters.sources.source import BatchColumns, Failures, Leaf, Numbers, RowNumbers

Put = Callable[[memoryview, str, int, Sequence[NDArray[Any]]], list[memoryview]]
"""Writes all fields of one record into a row, but encoded images, which are returned.

Called with the record, the format of its file, the row, and the columns.
"""
# Damaged records to skip in search of one that shows what they are like.
_TRIES = 100
_KINDS = {
    np.dtype(np.int64): example.INT64_LIST,
    np.dtype(np.float64): example.FLOAT_LIST,
    np.dtype(np.float32): example.FLOAT_LIST,
}


class RecordRows:
    """Fills rows of batches. Thread-safe; for this process alone.

    Args:
        files: The records.
        decoders: Decoders of the fields that are encoded images, by column number.
        put: Writes a record that is read by itself.
        parser: Parser for the records of a batch; None to read each record by itself.
        with_field: Adds the name of an image's column to an error.
    """

    def __init__(
        self,
        files: RecordFiles,
        decoders: dict[int, ImageDecoder],
        put: Put,
        parser: RecordParser | None,
        with_field: Callable[[int, ContentError], ContentError] = lambda column, error: error,
    ) -> None:
        self._files = files
        self._decoders = decoders
        self._put = put
        self._parser = parser
        self._with_field = with_field

    def fill(
        self, numbers: Numbers, rng_of: RngOf | None, columns: BatchColumns, rows: RowNumbers = None
    ) -> Failures:
        """Write records into rows; see ``Source.fill``. Errors don't name their record yet."""
        self._files.check_open()
        if self._parser is None:
            failures: dict[int, Exception] = {}
            self._one_by_one(numbers.argsort(), numbers, rng_of, columns, rows, failures)
            return list(failures.items())
        if self._decoders:  # Images are decoded in the order of the files.
            order = numbers.argsort(kind="stable")
            left, buffers, pieces = self._parser.parse(
                numbers[order], order if rows is None else rows[order], columns
            )
        else:
            order = np.arange(len(numbers))
            left, buffers, pieces = self._parser.parse(numbers, rows, columns)
        if left is None and not pieces:
            return []
        failures = {}
        parsed = order if left is None else order[~left]
        parsed_rows = parsed if rows is None else rows[parsed]
        for number, decoder in self._decoders.items() if len(parsed) else ():
            rng, found = chosen(rng_of, parsed), pieces[number][parsed_rows]
            failed = decoder.decode_rows(buffers, rng, parsed_rows, columns[number], found)
            self._note(failures, number, parsed, failed)
        if left is not None:
            self._one_by_one(order[left], numbers, rng_of, columns, rows, failures)
        return list(failures.items())

    def _one_by_one(
        self,
        todo: NDArray[np.int64],
        numbers: Numbers,
        rng_of: RngOf | None,
        columns: BatchColumns,
        rows: RowNumbers,
        failures: dict[int, Exception],
    ) -> None:
        """Read records one after another, and write their rows."""
        read: list[int] = []
        read_rows: list[int] = []
        encoded: list[list[memoryview]] = []
        for at in todo.tolist():
            row = at if rows is None else int(rows[at])
            try:
                shard, own = self._files.locate(int(numbers[at]))
                encoded.append(self._put(shard.read(own), shard.format, row, columns))
            except Exception as error:
                failures[at] = error
                continue
            read.append(at)
            read_rows.append(row)
        for (number, decoder), group in zip(self._decoders.items(), zip(*encoded)):
            failed = decoder.decode_rows(group, chosen(rng_of, read), read_rows, columns[number])
            self._note(failures, number, read, failed)

    def _note(
        self,
        failures: dict[int, Exception],
        column: int,
        samples: Sequence[int] | NDArray[np.int64],
        failed: Sequence[tuple[int, Exception]],
    ) -> None:
        """Record the first failure of each sample."""
        for at, error in failed:
            known = self._with_field(column, error) if isinstance(error, ContentError) else error
            failures.setdefault(int(samples[at]), known)


# --- typed features ---


def feature_rows(files: RecordFiles, content: Examples) -> RecordRows:
    """Make the writer of rows with typed features of one shape each, and images.

    Args:
        files: The records.
        content: Their features.
    """
    decoders = {at: each.decoder for at, each in enumerate(content.fields) if each.decoder}

    def put(payload: memoryview, format: str, row: int, columns: Any) -> list[memoryview]:
        values = content.values(payload, format)
        for number, column in enumerate(columns):
            if number not in decoders:
                column[row] = values[number]
        return [values[number] for number in decoders]

    def with_field(column: int, error: ContentError) -> ContentError:
        return named_error(content.fields[column], error)

    return RecordRows(files, decoders, put, _feature_parser(files, content), with_field)


def _feature_parser(files: RecordFiles, content: Examples) -> RecordParser | None:
    fields = content.fields
    # If only some files have headers, their records are read one by one.
    has_headers = all(shard.codec.envelope.has_header for shard in files.shards)
    if has_headers:
        try:
            fields = in_header(fields)
        except ContentError:  # May be Examples; if not, reading one by one reports it.
            return None
    if kernel.load() is None or not all(map(takes_default, fields)):
        return None
    labels = [
        place
        for place, field in enumerate(fields)
        if content.moves
        and has_headers
        and field.key == examples.LABEL
        and field.part_of is None
        and field.shape
    ]

    def kind_of(shard: Shard) -> int:
        is_alike = shard.codec.envelope.has_header == has_headers
        return shard.codec.kernel_kind if is_alike else recordparser.LEFT

    columns = [column_of(field, has_headers) for field in fields]
    return RecordParser(files, fields, columns, kind_of, labels)


# --- images and labels ---


def image_rows(files: RecordFiles, content: Images, label: Leaf) -> RecordRows:
    """Make the writer of rows with an image and its label.

    Args:
        files: The records.
        content: Decodes the records.
        label: Shape and dtype of all labels.
    """
    decoder = content.decoder

    def put(payload: memoryview, format: str, row: int, columns: Any) -> list[memoryview]:
        encoded, label = content.split(payload, format)
        try:
            _put_label(label, columns[1], row)
            if decoder is not None:
                return [encoded]
            _put_image(encoded, columns[0], row)
        except UnlikeError as error:
            # If no image follows the label, the header's label count is damaged: report damage.
            # Otherwise, the label or the image is unlike the others.
            raise (error if _is_image(encoded) else error.damage) from None
        return []

    decoders = {} if decoder is None else {0: decoder}
    return RecordRows(files, decoders, put, _image_parser(files, content, label))


def image_leaf(files: RecordFiles, content: Images) -> Leaf | None:
    """Return shape and dtype of all images; None if not fixed."""
    decoder = content.decoder
    if decoder is not None and decoder.shape is not None:
        return decoder.shape, decoder.dtype
    files.check_open()
    if decoder is not None:
        return None
    raw = _first_raw(files, content)
    return None if raw is None else (raw[0].shape, raw[0].dtype)


def _first_raw(files: RecordFiles, content: Images) -> tuple[NDArray[Any], bytes] | None:
    """First raw array, and its header, if all records of its file are equally long."""
    shard = files.locate(0)[0]
    if not _are_equally_long(shard):
        return None
    for number in range(min(len(shard), _TRIES)):
        try:
            encoded, _ = content.split(shard.read(number), shard.format)
            if bytes(encoded[: len(npy.MAGIC)]) != npy.MAGIC:
                continue
            array = npy.read(encoded)
        except (ContentError, RecordError):
            continue  # Damaged; the next one may do.
        if not array.size or not array.flags.c_contiguous:
            return None
        return array.copy(), bytes(encoded[: len(encoded) - array.nbytes])
    return None


def _image_parser(files: RecordFiles, content: Images, leaf: Leaf) -> RecordParser | None:
    (image, label), (shape, dtype) = content.names, leaf
    if kernel.load() is None or dtype not in _KINDS or len(shape) > 1 or 0 in shape:
        return None
    if content.decoder is not None:
        first = KernelColumn(
            image.encode(), example.BYTES_LIST, 1, recordparser.CONTENT, is_place=True
        )
    elif (raw := _first_raw(files, content)) is not None:
        size, prefix = raw[0].nbytes, raw[1]
        first = KernelColumn(
            image.encode(), example.BYTES_LIST, size, recordparser.CONTENT, prefix=prefix
        )
    else:
        return None
    part = recordparser.LABELS if shape else recordparser.OWN_LABEL
    second = KernelColumn(label.encode(), _KINDS[dtype], sum(shape) or 1, part)
    fields = [
        Field(image, first.name, first.kind, np.dtype(np.uint8)),
        Field(label, second.name, second.kind, dtype, shape),
    ]

    def kind_of(shard: Shard) -> int:
        # One value of an Example is a number, not an array.
        is_other = shape == (1,) and not shard.codec.envelope.has_header
        return recordparser.LEFT if is_other else shard.codec.kernel_kind

    labels = [1] if content.moves and shape else []
    return RecordParser(files, fields, [first, second], kind_of, labels)


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
