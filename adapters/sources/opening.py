"""``open_records``: opens record files as a source."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adapters.errors import ContentError, RecordError
from adapters.images import ImageDecoder
from adapters.records import RecordFiles
from adapters.records.files import Paths
from adapters.remote import is_url
from adapters.remote.cache import Cache, cache_of
from adapters.remote.urls import has_magic
from adapters.sources.decoders import Content, Decoded, Images, check_fields, content_of, guessed
from adapters.sources.examples import Examples
from adapters.sources.features import Field, field_of
from adapters.sources.folders import names_images, open_images
from adapters.sources.records import ExampleSource, RecordSource
from adapters.sources.targets import Boxes, Points, target_of

# Prefix of features with a value for each box, in the object-detection layout.
_PER_BOX = "image/object/"
# Words in feature names that mean coordinates in the image.
_SIDES = {"xmin", "ymin", "xmax", "ymax"}
_BOXES = {"box", "boxes", "bbox", "bboxes"}
_POINTS = {"keypoint", "keypoints", "landmark", "landmarks"}


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
    stretch. Reading that one raises ``RecordError``; ``on_error="skip"`` of a loader leaves it out.

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
        RecordError: A file of neither format, or one without records.
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
    """Open record files with the ``decode`` that suits the first record.

    Images if it holds one, features if it is another Example, else bytes. A folder, and a list or
    table of files by its ending, is opened by ``open_images``.

    Raises:
        FileNotFoundError: No such file, or a glob without matches.
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
    if found is None and _begins_without_image(files):
        # A header, as in insightface's files.
        found = source.select(range(1, len(files))).first(lambda number: look(number + 1))
    return source if found is None else RecordSource(files, content_of(found, None))


def _begins_without_image(files: RecordFiles) -> bool:
    """True if the first record is sound but for an image of no bytes."""
    if not len(files):
        return False
    try:
        image, _ = Images(None, {}).split(files.read(0), files.locate(0)[0].format)
    except (ContentError, RecordError):
        return False
    return not len(image)


def fields_of(
    decode: Mapping[str, Any], fields: Mapping[str, str] | None, outputs: Sequence[str] | None
) -> list[Field]:
    """Make the fields of a sample, in the order of ``outputs`` if given.

    Raises:
        TypeError: A name is no string, or a feature is of an unknown kind.
        ValueError: No feature, an unknown name, or an unreadable specification.
    """
    if not decode:
        raise ValueError('decode must name at least one feature, like {"label": Feature("int64")}')
    for name in decode:
        if not isinstance(name, str):
            raise TypeError(f"decode must have strings as names of features, got {name!r}")
    unknown = [name for name in fields or {} if name not in decode]
    if unknown:
        raise ValueError(f"fields must rename features of decode, got {unknown[0]!r}")
    for key in (fields or {}).values():
        if not isinstance(key, str):
            raise TypeError(f"fields must have strings as names in the record, got {key!r}")
    for text in [*decode, *(fields or {}).values()]:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"names of features must be text that UTF-8 has, as Examples do, got {text!r}"
            ) from None
    names = list(decode) if outputs is None else _outputs(outputs, decode)
    renamed = fields or {}
    made = [
        target_of(name, given, decode, renamed)
        if isinstance(given := decode[name], (Boxes, Points))
        else field_of(name, renamed.get(name, name), given)
        for name in names
    ]
    _check_targets(decode, made)
    return made


def _check_targets(decode: Mapping[str, Any], fields: Sequence[Field]) -> None:
    """Reject coordinates that would not follow their cropped or flipped image.

    Raises:
        ValueError: There are some, or per-box values that would stay while boxes are dropped.
    """
    decoders = [each for each in decode.values() if isinstance(each, ImageDecoder)]
    moving = next((each for each in decoders if each.crop is not None or each.flip), None)
    drops = any(isinstance(each, Boxes) for each in decode.values())
    for field in fields:
        key = str(field.key, "utf-8")
        if field.decoder is not None or field.target is not None or field.text is not None:
            kind = None
        else:
            kind = _kind_of(key, field)
        if drops and field.varies and (kind == "Boxes" or key.startswith(_PER_BOX)):
            raise ValueError(
                f"decode[{field.name!r}] must lose its values with the boxes that are dropped, got "
                f"a feature beside Boxes: give it as Boxes(per_box={{{key!r}: Feature(...)}})"
            )
        if moving is not None and kind is not None:
            given = "" if key.startswith(_PER_BOX) else "format, keys, ..."
            raise ValueError(
                f"decode[{field.name!r}] must follow the image, which {moving!r} crops or flips, "
                f"got a feature that stays as it is: give {kind}({given}) instead, like "
                f'{{"{kind.lower()}": {kind}({given})}}, which reads all of their coordinates'
            )


def _kind_of(key: str, field: Field) -> str | None:
    """Kind of coordinates by name and shape: ``"Boxes"``, ``"Points"`` or None."""
    words = set(re.split("[^a-z]+", key.lower()))
    last = field.shape[-1:]
    if words & _SIDES or (words & _BOXES and (field.varies or last == (4,))):
        return "Boxes"
    return "Points" if words & _POINTS and (field.varies or last in ((2,), (3,))) else None


def _outputs(outputs: Any, decode: Mapping[str, Any]) -> list[str]:
    if isinstance(outputs, str) or not isinstance(outputs, Sequence):
        raise TypeError(
            'outputs must be names in the order of a sample, like ("image", "label"), got '
            f"{outputs!r}"
        )
    for name in outputs:
        if not isinstance(name, str) or name not in decode:
            listed = ", ".join(map(repr, decode))
            raise ValueError(f"outputs must be names of decode ({listed}), got {name!r}")
    if not outputs or len(set(outputs)) < len(outputs):
        raise ValueError(f"outputs must name features, each once, got {outputs!r}")
    return list(outputs)
