"""``open_records``: opens record files as a source.

``RecordSource`` has their records as samples, and ``ExampleSource`` those of typed features.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_flag
from adapters.errors import ContentError, RecordError, UnlikeError
from adapters.generators import RngOf
from adapters.images import ImageDecoder
from adapters.records import RecordFiles
from adapters.records.envelope import LABEL, has_fractions
from adapters.records.files import Paths
from adapters.records.storage import MappedFile
from adapters.remote import is_url
from adapters.remote.cache import Cache, cache_of
from adapters.remote.urls import has_magic
from adapters.sources.decoders import (
    Content,
    Decoded,
    Images,
    check_fields,
    content_of,
    cut_out,
    guessed,
)
from adapters.sources.examples import Examples
from adapters.sources.features import Field
from adapters.sources.folders import names_images, open_images
from adapters.sources.recordrows import TRIES, RecordRows, feature_rows, image_field, image_rows
from adapters.sources.source import (
    BatchColumns,
    Failures,
    Leaf,
    Numbers,
    Origin,
    RowNumbers,
    Source,
    chosen_of,
)
from adapters.sources.targets import fields_of
from adapters.structure import flatten

# Records whose labels are looked at, all over the files, for fractions among integers.
_LOOKS = 64


def open_records(
    paths: Paths,
    *,
    format: str = "auto",
    decode: str | ImageDecoder | Mapping[str, Any] | Callable[[bytes], Any] | None = None,
    fields: Mapping[str, str] | None = None,
    outputs: Sequence[str] | None = None,
    verify: bool = True,
    cache: str | os.PathLike[str] | Cache | None = None,
) -> RecordSource:
    """Open RecordIO and TFRecord files as one source with random access.

    An index next to a file is used if it fits: ``train.idx``, as written by MXNet or DALI, for
    ``train.rec`` or ``train.tfrecord``. A missing index is built and stored in the user's cache
    folder. Nothing is written next to the files.

    A damaged or truncated file has its whole records, and one record in the place of each damaged
    stretch. Reading that one raises ``RecordError``; with ``on_error="skip"``, a loader takes the
    next record instead.

    Args:
        paths: A path, a folder of record files as written by Spark, a glob, whose files are sorted
            by name, or a sequence of these; or URLs and globs of them:
            ``s3://bucket/train-*.tfrecord``, ``gs://``, ``az://``, ``http(s)://`` and whatever
            fsspec knows. An open file must not be written to; a file that is renamed into its place
            is another file. An object that changes is an error.
        format: ``"recordio"``, ``"tfrecord"``, or ``"auto"``, which detects it from the content. A
            TFRecord may be compressed with GZIP or ZLIB; it is then inflated into a temporary file.
        decode: Decoding of a record. None: its bytes. ``"image"``: (array, label) from the image in
            a tf.train.Example or behind MXNet's IRHeader; the array is uint8 (height, width, 3),
            RGB, or the stored array if it is in NPY format. An ``ImageDecoder``: (its array,
            label). ``"example"``: a dict of an Example's features, each a list of bytes, float32
            ``(values,)`` or int64 ``(values,)``. A function: its result for the bytes, or for the
            bytes and ``rng``. A single label is a Python number, several are float32 or int64
            ``(labels,)``. A mapping, for an Example: names of features to a ``Feature``, an
            ``ImageDecoder`` for encoded images, ``Boxes`` or ``Points`` that follow these, or
            TensorFlow's ``FixedLenFeature``, ``VarLenFeature``, ``RaggedFeature`` or
            ``FixedLenSequenceFeature``. It makes a dict of arrays, and of NumPy numbers for the
            shape ``()``; other features aren't read. If all features are numbers of one shape,
            batches are gathered without a step per record. Several images of a sample are cropped
            and flipped alike if their decoders agree; a mask needs ``interpolation="nearest"``. In
            MXNet's records, ``"label"``, ``"id"`` and ``"id2"`` are those of the IRHeader, and
            every other name is the payload.
        fields: Names of features in the record, if they differ: for images, ``{"image/encoded":
            ..., "image/class/label": ...}`` or ``{"image": ..., "label": ...}``; for ``"example"``
            and a mapping, from the sample's names to the record's.
        outputs: For a mapping: the features of a sample, which becomes a tuple in this order.
        verify: Check the CRCs of a record when it is read first.
        cache: A folder on a local disk, or a ``Cache``, for data read from objects in a store or
            from files on slow disks. A folder means a limit of 100 GB.

    Returns:
        A source with ``len``, ``[i]``, slices, iteration, ``read(i)``, ``close`` and ``with``, for
            ``SafeSequence`` and ``gluon_loader``, or for any other loader of map-style data sets.

    Raises:
        ConnectionError: A store doesn't answer within a minute, or the seconds in the environment
            variable ``ADAPTERS_REMOTE_SECONDS``.
        FileNotFoundError: No such file, or a glob without matches.
        ImportError: No package is installed for this kind of URL.
        PermissionError: A store refuses access.
        RecordError: A file of neither format, or one without a whole record, unless it is empty.
        TypeError: Features, ``outputs`` or ``cache`` of the wrong type.
        ValueError: An unknown format or ``decode``, an invalid feature, or unknown ``outputs``.

    Example:
        >>> import os, tempfile
        >>> from adapters import RecordWriter, open_records
        >>> path = os.path.join(tempfile.mkdtemp(), "numbers.rec")
        >>> with RecordWriter(path, format="recordio") as writer:
        ...     numbers = [writer.write(bytes([i])) for i in range(3)]
        >>> open_records(path, decode=ord)[:]
        [0, 1, 2]
    """
    check_flag("verify", verify)
    kept = cache_of(cache)
    if isinstance(decode, Mapping):
        check_fields(fields)
        examples = Examples(fields_of(decode, fields, outputs), outputs is not None)
        return ExampleSource(RecordFiles(paths, format, bool(verify), kept), examples)
    if outputs is not None:
        raise ValueError(
            'outputs must go with decode={"name": Feature(...), ...}, whose names it orders, got '
            f"{outputs!r} with decode={decode!r}"
        )
    content = content_of(decode, fields)
    files = RecordFiles(paths, format, bool(verify), kept)
    have_headers = all(shard.codec.envelope.has_header for shard in files.shards)
    if fields and isinstance(content, Images) and have_headers:
        raise ValueError(
            f"fields must name features of a tf.train.Example, got {fields!r} for images behind an "
            'IRHeader, which has none: decode={"image": ImageDecoder(), "label": '
            'Feature("float32")} takes fields={"label": "id"}'
        )
    return RecordSource(files, content)


def open_guessed(paths: Paths) -> Decoded:
    """Open record files with the ``decode`` that suits the first record.

    Images if it holds one, features if it is another Example, else bytes. A folder, and a list or
    table of files by its ending, is opened by ``open_images``.
    """
    if names_images(paths):
        return open_images(paths)
    try:
        files = RecordFiles(paths)
    except FileNotFoundError as error:
        if not isinstance(paths, str) or not is_url(paths) or has_magic(paths):
            raise
        try:  # A folder that doesn't end with a slash.
            return open_images(paths)
        except (OSError, ValueError):
            raise error from None
    source = RecordSource(files, content_of(None, None))

    def look(number: int) -> str | None:
        payload, format = files.read(number), files.locate(number)[0].format
        if number == 0 and len(files) > 1:  # Without an image: a header, as in insightface's files.
            with contextlib.suppress(ContentError, RecordError):
                if not len(Images(None, {}).split(payload, format)[0]):
                    return look(1)
        return guessed(payload, format)

    found = source.first(look)
    return source if found is None else RecordSource(files, content_of(found, None))


class RecordSource(Decoded):
    """Source that ``open_records`` returns. Thread-safe; a process gets a pickled copy."""

    unit = "record"
    _files: RecordFiles

    def __init__(self, files: RecordFiles, content: Content) -> None:
        super().__init__(files, content)
        self._rows: RecordRows | None = None  # Made on first use.
        self.classes: list[str] | None = None
        """Names of the classes by label, if known."""
        if isinstance(content, Images) and not content.as_float:
            some = np.unique(np.linspace(0, len(self) - 1, _LOOKS).astype(np.int64))
            with contextlib.suppress(ContentError, RecordError):
                labels = self.labels_of(some) if len(self) else None
                content.as_float = has_fractions(labels)

    def select(self, numbers: Any) -> RecordSource:
        """Return a source of these records, to be closed by itself, whose errors name the files."""
        return self._with_files(self._files.chosen(chosen_of(numbers, len(self))))

    def _with_files(self, files: RecordFiles) -> RecordSource:
        other = copy.copy(self)  # As ``__getstate__`` has it.
        other._files = files
        return other

    def with_content(self, content: Content) -> RecordSource:
        """Return a source of the same records with another content."""
        return type(self)(self._files, content)

    @property
    def version(self) -> str:
        """Fingerprint that changes when the files do."""
        return self._files.version

    def close(self) -> None:
        """Close the files."""
        self._rows = None  # It keeps the files mapped.
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_rows": None}
        state.pop("leaves", None)  # Looked for again, in the file that the other process opens.
        return state

    def united(self, others: Sequence[Source], classes: list[str] | None) -> Source | None:
        """Records of all files as one source, if they are decoded alike; else None."""
        several = [self, *(each for each in others if type(each) is type(self))]
        if len(several) <= len(others) or any(each.makes_samples for each in several):
            return None
        files = RecordFiles.all_of([each._files for each in several])
        formats = {shard.format for shard in files.shards}
        contents = {pickle.dumps(each.content) for each in several}
        if len(formats) > 1 or len(contents) > 1:
            return None
        whole = self._with_files(files)
        whole.classes = classes
        return whole

    # Used by plans.

    def sample(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """Return one sample, cropped and flipped at random by ``rng``."""
        shard, own = self._files.locate(number)
        payload = shard.read(own)
        try:
            return self.content.sample(payload, shard.format, self.fixed_rng(number, rng))
        except ContentError as error:
            raise self._located(number, error) from error

    def origin(self, number: int, rng: np.random.Generator) -> Origin:
        """Return file, record and offset; for an image, also its crop."""
        shard, own = self._files.locate(number)
        place = Origin(shard.storage.name, own, shard.begin_of(own))
        try:
            found = self.content.image_in(shard.read(own), shard.format)
            return place if found is None else cut_out(place, *found, rng)
        except (ContentError, RecordError):  # The batch reports it.
            return place

    def labels_of(self, numbers: Numbers) -> NDArray[Any] | None:
        """The labels of records in local files, if each is one number; no image is decoded."""
        label_in = self.content.label_in
        local = all(isinstance(shard.storage, MappedFile) for shard in self._files.shards)
        if label_in is None or not local:
            return None
        labels: list[Any] = [None] * len(numbers)
        for place, format, payload in self._files.read_unchecked(numbers):
            labels[place] = label_in(payload, format)
        return np.array(labels) if all(np.ndim(label) == 0 for label in labels) else None

    @functools.cached_property
    def leaves(self) -> tuple[Leaf, ...] | None:
        """Shape and dtype of all samples' arrays and labels; None if not fixed."""
        if not isinstance(self.content, Images) or not len(self):
            return None
        array = image_field(self._files, self.content)[0].leaf
        if array is None:
            return None
        # Decode the whole sample: a damaged record may still have a readable label.
        label = np.asarray(self.first(lambda number: self.sample(number)[1]))
        # Strings may be longer in other records.
        return (array, (label.shape, label.dtype)) if label.dtype.kind in "biuf" else None

    def first(self, look: Callable[[int], Any]) -> Any:
        """Apply ``look`` to the first record that can be read; None without records."""
        damaged = None
        for number in range(min(len(self), TRIES)):
            try:
                return look(number)
            except RecordError as error:
                damaged = damaged or error
        if damaged is not None:
            raise damaged
        return None

    def fill(
        self, numbers: Numbers, rng_of: RngOf | None, columns: BatchColumns, rows: RowNumbers = None
    ) -> Failures:
        """Write samples into rows of a batch, as in ``leaves``."""
        writer = self._rows  # Another thread may close the source meanwhile.
        if writer is None:
            if isinstance(self.content, Examples):
                writer = feature_rows(self._files, self.content)
            else:
                assert isinstance(self.content, Images)
                label = columns[1].shape[1:], columns[1].dtype
                writer = image_rows(self._files, self.content, label)
            self._rows = writer
        failures, left = writer.fill(numbers, rng_of, columns, rows)
        for place in left.tolist():
            try:
                rng = None if rng_of is None else rng_of(place)
                row = place if rows is None else int(rows[place])
                self._put(self.sample(int(numbers[place]), rng), columns, row)
            except Exception as error:
                failures[place] = error
        return [(at, self._located(int(numbers[at]), error)) for at, error in failures.items()]

    def _put(self, sample: Any, columns: BatchColumns, row: int) -> None:
        """Write a sample into its row, if shape and dtype are those of the first one."""
        (image, label), (images, labels) = sample, columns
        array = np.asarray(label)
        if array.shape != labels.shape[1:]:
            raise UnlikeError(
                f"a label of shape {labels.shape[1:]}",
                f"shape {array.shape}; labels that differ need collate=, such as pad(), or a "
                "transform",
            )
        is_number, is_float = array.dtype.kind in "biuf", array.dtype.kind == "f"
        if is_number:
            labels[row] = array
        if not (is_number and np.array_equal(labels[row], array, equal_nan=is_float)):
            remedy = f'decode={{"{LABEL}": Feature("float32"), ...}} reads both'
            raise UnlikeError(f"a label of {labels.dtype} as the first ({remedy})", f"{label!r}")
        if (image.shape, image.dtype) != (images.shape[1:], images.dtype):
            raise ContentError(f"{images.dtype} {images.shape[1:]}", f"{image.dtype} {image.shape}")
        images[row] = image

    def _located(self, number: int, error: Exception) -> Exception:
        """Add file and record to a ``ContentError``."""
        if not isinstance(error, ContentError):
            return error
        shard, own = self._files.locate(number)
        offset = int(shard.offsets[own])
        located = RecordError(shard.storage.name, own, offset, error.expected, error.found)
        located.__cause__ = error
        return located


class ExampleSource(RecordSource):
    """Source that ``open_records`` returns for a mapping of features.

    If all features have one shape, they are written a batch at once. Text and variable-length
    features are returned as samples.
    """

    content: Examples
    python_numbers = False

    def __init__(self, files: RecordFiles, content: Examples) -> None:
        super().__init__(files, content)
        first, decoders = content.fields[0], {type(field.decoder) for field in content.fields}
        is_image = first.decoder is not None or (first.is_fixed and len(first.shape) > 1)
        self.holds_images = content.as_tuple and is_image
        self.decodes = ImageDecoder in decoders
        self.makes_samples = not decoders <= {ImageDecoder, type(None)}
        self.pads = any(field.varies and field.default is not None for field in content.fields)

    def way(self, transformed: bool) -> str:
        """Human-readable description of how samples are read."""
        if not transformed and all(field.is_fixed for field in self.content.fields):
            return "features of records, gathered a batch at a time"
        return super().way(transformed)

    @functools.cached_property
    def leaves(self) -> tuple[Leaf, ...] | None:
        """Shape and dtype of each feature; None if they aren't fixed."""
        known = [field.leaf for field in self.content.fields]
        return None if None in known else tuple(known)  # type: ignore[arg-type]

    @property
    def treedef(self) -> Any:
        """Sample structure (dict or tuple) with leaf numbers as leaves."""
        return self.content.treedef

    def _put(self, sample: Any, columns: BatchColumns, row: int) -> None:
        for column, leaf in zip(columns, flatten(sample)[0]):
            column[row] = leaf

    def remedy(self, shape: tuple[int, ...]) -> str:
        """Advice on making arrays of unequal shapes equal; names the features."""
        sizes = [each.name for each in self.content.fields if each.decoder and not each.leaf]
        if sizes and len(shape) == 3:
            named = ", ".join(f"{name!r}: ImageDecoder(224)" for name in sizes)
            return f"images of several sizes or channels need {named} in decode, or another size"
        if len(shape) < 3 and any(each.target is not None for each in self.content.fields):
            like = "(None, -1)" if self.content.as_tuple else '{"image": None, "boxes": -1}'
            return (
                "samples have as many boxes as they have: pad() fills them up, with a value for "
                f"each member of a sample and None for an image, such as pad({like}), as collate= "
                "of SafeSequence or batchify_fn= of gluon_loader"
            )
        varying = [each for each in self.content.fields if each.varies and each.default is None]
        if not varying:
            return super().remedy(shape)
        named = ", ".join(f"{each.name!r}: {_with_default(each)}" for each in varying)
        return (
            f"features of several lengths need {named} in decode, which fills a batch up to its "
            "longest, or collate=pad() or ragged()"
        )

    def padded(self, samples: list[Any], extra: int = 0) -> list[Any]:
        """Pad variable-length arrays that have a fill value to the longest of the batch."""
        fields, as_tuple = self.content.fields, self.content.as_tuple
        kind = tuple if as_tuple else dict
        if any(type(sample) is not kind or len(sample) != len(fields) for sample in samples):
            return samples  # A sample from on_error, which collating checks.
        padded: list[Any] = [dict(enumerate(each) if as_tuple else each) for each in samples]
        for place, field in enumerate(fields):
            if not field.varies or field.default is None:
                continue
            key = place if as_tuple else field.name
            # Samples of other sources may lack the feature, which collating reports.
            alike = [sample for sample in padded if key in sample]
            arrays = [np.asarray(sample[key]) for sample in alike]
            if any(array.shape[1:] != field.shape or not array.ndim for array in arrays):
                continue
            longest = max(map(len, arrays), default=0) + extra
            for sample, array in zip(alike, arrays):
                if len(array) < longest:
                    whole = np.full((longest, *field.shape), field.default, field.dtype)
                    whole[: len(array)] = array
                    sample[key] = whole
        return [tuple(sample.values()) for sample in padded] if as_tuple else padded


def _with_default(field: Field) -> str:
    dtype = field.text.__name__ if field.text else f'"{field.dtype}"'
    shape = f"({', '.join(map(str, (None, *field.shape)))}{',' * (not field.shape)})"
    default = {"bytes": 'b""', "str": '""'}.get(dtype, "0")
    return f"Feature({dtype}, {shape}, default={default})"
