"""``open_records``: from the names of record files to a source."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adapters.images import ImageDecoder
from adapters.records import RecordFiles
from adapters.records.files import Paths
from adapters.remote import is_url
from adapters.remote.cache import Cache, cache_of
from adapters.remote.urls import has_magic
from adapters.sources.contents import Content, Images, check_fields, content_of, guessed
from adapters.sources.decoded import Decoded
from adapters.sources.entries import fields_of
from adapters.sources.examples import Examples
from adapters.sources.examplesource import ExampleSource
from adapters.sources.folders import names_images, open_images
from adapters.sources.imageless import is_without_image
from adapters.sources.records import RecordSource


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

    An index beside a file is used if it fits, ``train.idx`` as MXNet or DALI have it for
    ``train.rec`` or ``train.tfrecord``; a missing one is built, and kept in the user's cache
    folder. Nothing is written beside the files.

    A file that is damaged or cut short has its whole records, and one in the place of each damaged
    stretch, which is a ``RecordError`` when it is reached; ``on_error="skip"`` of a loader leaves
    it out.

    Args:
        paths: A path, a folder of record files as Spark writes them, a glob, whose files are sorted
            by name, or a sequence of these; or URLs and globs of them,
            ``s3://bucket/train-*.tfrecord``, ``gs://``, ``az://``, ``http(s)://`` and what fsspec
            knows. A file must not be written into while it is open; one that is
            renamed into its place is another. An object that changes is an error.
        format: ``"recordio"``, ``"tfrecord"``, or ``"auto"``, which is told from the content. A
            TFRecord may be compressed with GZIP or ZLIB; it is then inflated into a temporary file.
        decode: What a record becomes. None: its bytes. ``"image"``: (array, label), of the image in
            a tf.train.Example, or behind MXNet's IRHeader; the array is uint8 (height, width, 3),
            RGB, or, where a raw one in NPY's format was stored, that. An ``ImageDecoder``: (array
            as it says, label). ``"example"``: a dict of an Example's features, for each name a list
            of bytes, float32 ``(values,)`` or int64 ``(values,)``. A function: what that makes of
            the bytes. One label is a Python number, several are float32 or int64 ``(labels,)``.
            A mapping, for an Example: the names of features, each to what it is, a ``Feature``, an
            ``ImageDecoder`` for encoded images, ``Boxes`` or ``Points`` that follow these, or
            TensorFlow's own ``FixedLenFeature``,
            ``VarLenFeature``, ``RaggedFeature`` or ``FixedLenSequenceFeature``; a dict of arrays,
            and of NumPy's numbers where a shape is ``()``. Other features aren't read. Where all
            are numbers of one shape, batches are gathered without a step for each record; several
            images of a sample are cropped and flipped alike, if their decoders ask for the same;
            that of a mask needs ``interpolation="nearest"``. In MXNet's records, ``"label"``,
            ``"id"`` and ``"id2"`` are those of the IRHeader, and every other name is the payload.
        fields: What features are called in the record: for images, ``{"image/encoded": ...,
            "image/class/label": ...}`` or ``{"image": ..., "label": ...}``, if otherwise; for
            ``"example"`` and for a mapping, the sample's names to those in the record.
        outputs: For a mapping: the features that a sample has, as a tuple in this order.
        verify: Check the CRCs of a record the first time that it is read.
        cache: A folder on a local disk, or a ``Cache``, that keeps what was read of the files: of
            objects in a store, and of files on slow disks. A folder stands for a limit of 100 GB.

    Returns:
        A source: ``len``, ``[i]``, slices, iteration, ``read(i)``, ``close`` and ``with``; for
        ``SafeSequence`` and ``gluon_loader``, or for any other loader of map-style data sets.

    Raises:
        ConnectionError: A store doesn't answer within a minute, or what the environment variable
            ``ADAPTERS_REMOTE_SECONDS`` says.
        FileNotFoundError: No such file, or a glob that finds none.
        ImportError: URLs of a kind for which nothing is installed.
        PermissionError: A store refuses.
        RecordError: A file of neither format, or one that holds no record.
        TypeError: Features, ``outputs`` or ``cache`` of a wrong type.
        ValueError: An unknown format or ``decode``, a feature that can't be, ``outputs`` that
            aren't there.

    Example:
        >>> import os, tempfile
        >>> from adapters import RecordWriter, open_records
        >>> path = os.path.join(tempfile.mkdtemp(), "numbers.rec")
        >>> with RecordWriter(path, format="recordio") as writer:
        ...     numbers = [writer.write(bytes([i])) for i in range(3)]
        >>> open_records(path, decode=ord)[:]
        [0, 1, 2]
    """
    if verify not in (True, False):
        raise TypeError(f"verify must be True or False, got {verify!r}")
    kept = cache_of(cache)
    content: Content
    if isinstance(decode, Mapping):
        check_fields(fields)
        content = Examples(fields_of(decode, fields, outputs), outputs is not None)
    elif outputs is not None:
        raise ValueError(
            'outputs must go with decode={"name": Feature(...), ...}, whose names it orders, got '
            f"{outputs!r} with decode={decode!r}"
        )
    else:
        content = content_of(decode, fields)
    files = RecordFiles(paths, format, bool(verify), kept)
    if isinstance(content, Examples):
        return ExampleSource(files, content)
    return RecordSource(files, content)


def open_guessed(paths: Paths) -> Decoded:
    """As ``open_records``, with the ``decode`` that the first record suggests.

    Images where it holds one, features where it is another Example, else the bytes. A folder, and a
    list or table of files by its ending, is opened as ``open_images`` does it.

    Raises:
        FileNotFoundError: No such file, or a glob that finds none.
        RecordError: A file of neither format, or damaged as a whole.
        ValueError: A folder without folders of images.
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
        return guessed(files.read(number), files.locate(number)[0].format)

    found = source.first(look)
    if found is None and len(files) and is_without_image(files, Images(None, {}), 0):
        # A header, as in insightface's files.
        found = source.select(range(1, len(files))).first(lambda number: look(number + 1))
    return source if found is None else RecordSource(files, content_of(found, None))
