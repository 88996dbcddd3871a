"""``materialize``: decode samples once, and read them from records from then on."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from adapters.images import ImageDecoder
from adapters.images.decoder import halves
from adapters.packing.inputs import Inputs, Item, Samples, digest
from adapters.packing.manifest import Manifest
from adapters.packing.run import FolderInUseError, Run, earlier_settings, locked
from adapters.records import CODECS, RecordFiles
from adapters.remote.urls import local_path
from adapters.sources import ArraySource, Source, Subset, source_given
from adapters.sources.columns import (
    ARRAY,
    IMAGE,
    Column,
    Columns,
    LeafChanged,
    columns_in,
    described,
    names_of,
    record,
)
from adapters.sources.decoders import Decoded, Images
from adapters.sources.examples import Examples
from adapters.sources.features import Field
from adapters.sources.imagefiles import ImageSource, ImageTuples
from adapters.sources.records import ExampleSource
from adapters.sources.source import Composite
from adapters.structure import flatten

_STEM, _FORMAT = "samples", "tfrecord"
_SHARD_BYTES = 128 << 20
_TAKEN_APART = (ImageDecoder, type(None))
# Polling interval while another process writes the same folder.
_LOOK_SECONDS = 0.2


def materialize(source: Any, folder: str | os.PathLike[str]) -> Source:
    """Decode all samples once, and return a source that reads them decoded.

    Only steps without random numbers are stored: images are decoded, and resized and cropped if
    that is the same each time; features are parsed; other sources are stored as whole samples.
    Random crops, flips, ``mean`` and ``std`` are applied when a sample is read. Batches are the
    same as those of ``source``, with one exception: a ``"random_resized"`` crop, and a ``"random"``
    one without ``resize_short``, are cut from the whole image, while ``source`` decodes a JPEG at a
    half, a quarter or an eighth if the box is at least twice as large as the result.

    A second call with the same source and folder opens what the first one wrote. Processes that
    call it at the same time wait for the one that writes. Files get their names when all are
    finished, so ``kill -9`` leaves nothing incomplete behind.

    Args:
        source: A result of ``open_records`` or ``open_images``, parts of it by ``select`` or
            ``split``, arrays, or any data set with ``__len__`` and ``__getitem__`` whose samples
            are arrays, numbers, ``str`` or ``bytes`` in tuples and dicts. Its code runs in one
            thread at a time unless it is declared thread-safe.
        folder: Folder on a local disk for TFRecord files, indexes and a manifest; it is made. An
            image of 500x375 takes 560 kB, cropped to 224x224 150 kB.

    Returns:
        A source with random access, for ``SafeSequence``, ``gluon_loader`` and ``select``. Python
        numbers stay Python numbers; MXNet and PyTorch arrays become NumPy arrays, big-endian ones
        native, and a batch of texts holds objects.

    Raises:
        OSError: The folder can't be written to, or an image file can't be read.
        RecordError: A record or image is damaged.
        TypeError: Samples can't be stored, or the source has no random access.
        ValueError: The folder has samples of another source, of changed files, or of another
            decoder; or the source's samples differ each time, such as with ``Boxes`` that follow a
            crop.

    Example:
        >>> import numpy as np, tempfile
        >>> from adapters import materialize
        >>> images = np.arange(12, dtype="float32").reshape(3, 4)
        >>> decoded = materialize((images, [0, 1, 2]), tempfile.mkdtemp())
        >>> decoded[1][0].tolist(), int(decoded[1][1])
        ([4.0, 5.0, 6.0, 7.0], 1)
    """
    place = Path(os.path.abspath(local_path(folder, "folder")))
    stages = _stages_of(source_given(source, "source"))
    version, is_known = _version_of(stages.before)
    while (found := _manifest_in(place)) is None:
        try:
            _write(place, stages, version, is_known)
        except FolderInUseError:
            time.sleep(_LOOK_SECONDS)
    if found.settings["source"] != version:
        raise ValueError(
            f"folder {os.fspath(folder)!r} has the samples of another source, or of files or a "
            "decoder that have changed since: give another folder, or remove this one"
        )
    columns, treedef = columns_in(found.settings)
    paths = [place / packed.name for packed in found.files]
    for path, packed in zip(paths, found.files):
        if not path.exists() or path.stat().st_size != packed.bytes:
            raise ValueError(
                f"folder {os.fspath(folder)!r} must have what materialize wrote, got {path.name!r} "
                "missing or of another size: remove the folder, and materialize again"
            )
    files = RecordFiles([str(path) for path in paths], _FORMAT)
    content = Columns(columns, stages.decoders, treedef)
    materialized = ExampleSource(files, content)
    materialized.python_numbers, materialized.classes = content.python_numbers, found.classes
    return materialized


class _Stages(NamedTuple):
    """Source split into stored samples and the steps applied when they are read."""

    before: Source
    """Source of the samples to store, the same each time."""
    decoders: dict[int, ImageDecoder]
    """Decoders for the remaining steps of images, by leaf number."""
    fields: Sequence[Field] = ()
    """Known features, by leaf number."""


def _stages_of(source: Source) -> _Stages:
    """Split a source; a ``ValueError`` if its samples differ each time."""
    if source.whole_batches:
        raise TypeError("source must give single samples, got one of whole batches")
    if isinstance(source, Subset):
        whole = _stages_of(source.whole)
        return whole._replace(before=whole.before.select(source.numbers))
    if isinstance(source, ImageTuples):
        parts = list(map(_stages_of, source.parts))
        sources = [cast(ImageSource, part.before) for part in parts]
        decoders = {at: part.decoders[0] for at, part in enumerate(parts) if part.decoders}
        return _Stages(ImageTuples(sources), decoders)
    content = source.content if isinstance(source, Decoded) else None
    if isinstance(source, Decoded) and isinstance(content, Images):
        if type(content.decoder) is ImageDecoder:
            first, after = halves(content.decoder)
            return _Stages(source.with_content(content.with_decoder(first)), {0: after})
    elif isinstance(source, Decoded) and type(content) is Examples:
        fields = content.fields
        if all(each.target is None and type(each.decoder) in _TAKEN_APART for each in fields):
            both = {at: halves(each.decoder) for at, each in enumerate(fields) if each.decoder}
            stored = list(fields)
            for at, (before, _) in both.items():
                stored[at] = replace(fields[at], decoder=before, dtype=before.dtype)
            decoders = {at: after for at, (_, after) in both.items()}
            return _Stages(source.with_content(content.with_fields(stored)), decoders, fields)
    if source.draws:
        raise ValueError(
            "source must give the same samples each time, got one that draws random numbers: "
            "an ImageDecoder is taken apart, but not a subclass, a function, or one that Boxes or "
            "Points follow, nor a source that is joined (materialize its parts) or materialized"
        )
    if source.arranged(False, 0) is not None:
        raise ValueError(
            "source must have no order of its own, got one that mix() or packed() has made: "
            "materialize its parts, and mix those"
        )
    return _Stages(source, {})


def _version_of(source: Source) -> tuple[str, bool]:
    """Fingerprint of a source, and True if it shows every change: not those of users' code."""
    if isinstance(source, Subset):
        version, is_known = _version_of(source.whole)
        numbers = hashlib.sha256(np.ascontiguousarray(source.numbers).data).hexdigest()
        return digest([version, numbers]), is_known
    if isinstance(source, Composite):
        versions, are_known = zip(*map(_version_of, source.parts))
        return digest(versions), all(are_known)
    if isinstance(source, Decoded):
        is_known = source.function is None and not source.makes_samples
        return digest([source.version, *_described(source.content)]), is_known
    if isinstance(source, ArraySource):
        return source.version, True
    kind = type(getattr(source, "data", source))
    return digest([f"{kind.__module__} {len(source)} samples of {kind.__name__}"]), False


def _described(content: Any) -> list[str]:
    """Describe everything that determines a sample's values; of a user's code, the name."""
    code = content.function or content.decoder
    while isinstance(code, partial):
        code = code.func
    return [
        type(content).__name__,
        getattr(code, "__qualname__", type(code).__qualname__),
        repr(content.decoder) if content.function is None else "",
        *getattr(content, "names", ()),
        repr(getattr(content, "renamed", None)),
        repr(getattr(content, "treedef", None)),
        *map(_described_field, getattr(content, "fields", ())),
    ]


def _described_field(field: Field) -> str:
    """Describe everything that determines a feature's value."""
    default = None if field.default is None else field.default.tolist()
    description = repr(replace(field, default=None, target=None)) + repr(default)
    if field.target is None:
        return description
    made_by = type(field.target).__name__, getattr(field.target, "given", None)
    return "".join([description, repr(made_by), *map(_described_field, field.target.parts)])


def _manifest_in(folder: Path) -> Manifest | None:
    """Load the manifest; None if writing hasn't finished."""
    if not folder.is_dir() and folder.exists():
        raise NotADirectoryError(f"folder must be one, got the file {os.fspath(folder)!r}")
    try:
        found = Manifest.load(folder / f"{_STEM}.json")
    except FileNotFoundError:
        return None
    if "source" not in found.settings:
        raise ValueError(
            f"folder must be empty or have what materialize wrote, got {os.fspath(folder)!r} with "
            f"{_STEM}.json of another kind"
        )
    return found


def _write(folder: Path, stages: _Stages, version: str, is_known: bool) -> None:
    """Write all samples, unless another process has done so meanwhile or is doing so."""
    with locked(folder):
        if _manifest_in(folder) is not None:
            return
        begun = (folder / f".{_STEM}.packing").exists()  # Some may have their names already.
        taken = [] if begun else sorted(path.name for path in folder.glob(f"{_STEM}*"))
        if taken:
            raise ValueError(
                f"folder must be empty or have what materialize wrote, got "
                f"{os.fspath(folder)!r} with {taken[0]!r}: give another folder"
            )
        _write_samples(folder, stages, version, is_known)


def _write_samples(folder: Path, stages: _Stages, version: str, is_known: bool) -> None:
    samples = _Whole(stages.before)
    columns, treedef = _columns_of(samples, stages)
    begun = earlier_settings(folder / _STEM)
    if is_known and begun.get("source") == version:  # Later samples may have had another shape.
        columns, _ = columns_in(begun)
    fetch = partial(stages.before.prefetch, elsewhere=False)
    classes = getattr(stages.before, "classes", None)
    inputs = Inputs(samples, classes, version if is_known else None, fetch)
    while True:
        # For reading the records, and for detecting that they are out of date.
        settings = {"source": version, **described(columns, treedef)}
        try:
            run = Run(folder / _STEM, inputs, _FORMAT, settings, _SHARD_BYTES, "raise")
            run.complete(partial(_encoded, columns, treedef))
            return
        except LeafChanged as change:  # Later samples may have any shape.
            columns[change.place] = replace(columns[change.place], kind=ARRAY, dtype="", shape=())


def _columns_of(samples: _Whole, stages: _Stages) -> tuple[list[Column], Any]:
    """Columns and structure that fit the first sample."""
    first, treedef = flatten(samples[0].content())
    names = names_of(treedef)
    if not first:
        raise ValueError("samples must hold at least one array, number or text, got none")
    columns = []
    for place, (name, leaf) in enumerate(zip(names, first)):
        if place in stages.decoders:
            columns.append(Column(name, IMAGE))
        elif stages.fields:
            columns.append(Column.of_field(name, stages.fields[place], leaf))
        else:
            columns.append(Column.of_leaf(name, leaf))
    return columns, treedef


def _encoded(columns: Sequence[Column], treedef: Any, item: Item) -> bytes:
    leaves, found = flatten(item.content())
    if found != treedef:
        raise ValueError(f"samples must be of one structure, got another for {item.name}")
    return CODECS[_FORMAT].encode(record(columns, leaves))


class _Whole(Samples):
    """Whole samples of a source, read when they are written."""

    def __getitem__(self, number: Any) -> Any:
        return Item(f"sample {number}", number, None, partial(self.read, number))
