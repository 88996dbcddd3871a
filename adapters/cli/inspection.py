"""``adapters inspect``: the first samples of files, folders or a loader, and their statistics."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from adapters.arguments import counted
from adapters.cli import arguments
from adapters.diagnosis.script import code_of, is_path, object_named
from adapters.errors import AdapterError, ContentError
from adapters.images import ImageDecoder, decode, size_of
from adapters.records import RecordFiles, example, tfrecord
from adapters.records.tensor import tensor_in
from adapters.remote import clean
from adapters.sources import source_given
from adapters.sources.decoders import Images, guessed
from adapters.sources.folders import names_images, open_images
from adapters.sources.imagefiles import ImageSource
from adapters.sources.records import open_guessed, open_records
from adapters.sources.suggestion import suggested
from adapters.viewing.images import TILE_PIXELS
from adapters.viewing.peek import Peek
from adapters.viewing.survey import statistics

_KINDS = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG": "PNG",
    b"\x93NUMPY": "raw (NPY)",
    b"GIF8": "GIF",
    b"BM": "BMP",
    b"RIFF": "WebP",
}
_SHOWN_BYTES = 16
# Records read to find out which features there are.
_LOOKED_AT = 100


def add_parser(subparsers: Any) -> None:
    """Add ``inspect`` to the command line."""
    command = subparsers.add_parser(
        "inspect",
        help="show the first samples of files, folders or a loader; contact sheets, statistics",
    )
    command.add_argument(
        "targets",
        nargs="+",
        metavar="TARGET",
        help="record files or folders of images, as paths or URLs (a folder's URL ends with a "
        "slash); or FILE.py:NAME or MODULE:NAME of a "
        "SafeSequence, a gluon_loader, a source, or a function that makes one",
    )
    command.add_argument(
        "--count",
        type=arguments.positive,
        default=5,
        help="samples that are shown of each file or source (default: %(default)s)",
    )
    command.add_argument(
        "--batches",
        type=arguments.positive,
        default=2,
        help="batches shown of a loader (default: %(default)s)",
    )
    command.add_argument("--sheet", metavar="PNG", help="also draw their images into this file")
    command.add_argument(
        "--statistics",
        action="store_true",
        help="also read everything: means, labels, sizes, what is damaged",
    )
    command.set_defaults(run=run_inspect)


def run_inspect(options: argparse.Namespace) -> None:
    """Run ``adapters inspect``."""
    names = [name for name in options.targets if not is_path(name)]
    if not names:
        _inspect_paths(arguments.files(options.targets), options)
    elif len(options.targets) > 1:
        raise argparse.ArgumentError(
            None, f"{names[0]} must be the only target, got {len(options.targets)}"
        )
    else:
        _inspect_object(names[0], options)


def _inspect_paths(paths: list[str], options: argparse.Namespace) -> None:
    """Show the first records or images of each path."""
    folders = list(filter(names_images, paths))
    records = [path for path in paths if path not in folders]
    for line in _described(folders, records, options.count):
        print(line)
    if options.statistics:
        for path in folders:
            print(statistics(path, progress=sys.stderr.isatty()))
        if records:
            print(statistics(open_guessed(records), progress=sys.stderr.isatty()))
    if options.sheet is not None:
        images = _images_of(folders, records, options.count)
        if not images:
            raise ContentError("records that are images", "none")
        Peek.of_samples(images).save(options.sheet)
        print(f"{options.sheet}: {counted(len(images), 'image')}")


def _inspect_object(name: str, options: argparse.Namespace) -> None:
    """Show the first batches of a loader, or the first samples of a source."""
    found = object_named(name)
    is_loader = hasattr(found, "peek")
    if is_loader and options.statistics:
        raise ValueError(
            f"--statistics is about a source, got {type(found).__name__}: name what it reads"
        )
    source = None if is_loader else source_given(found, "target")
    with contextlib.closing(found) if is_loader else contextlib.nullcontext(), code_of(name):
        if source is None:
            peek = found.peek(options.batches)
        else:
            if options.statistics:
                print(statistics(source, progress=sys.stderr.isatty()))
            count = min(options.count, len(source))
            peek = Peek.of_samples(source.sample(number) for number in range(count))
    print(peek)
    if options.sheet is not None:
        print(f"{peek.save(options.sheet)}: their images")


# --- descriptions of files ---


def _described(folders: Sequence[str], records: Sequence[str], count: int) -> Iterator[str]:
    """Describe each folder, list or table with its first images, and each file with its records."""
    for path in folders:
        with open_images(path) as source:
            yield from _files(path, source, count)
    if not records:
        return
    files = RecordFiles(records)
    for shard in files.shards:
        yield (
            f"{shard.storage.name}: {shard.format if shard.storage.size else 'empty'}, "
            f"{counted(len(shard), 'record')}, {shard.storage.size:,} bytes"
        )
        for number in range(min(count, len(shard))):
            try:
                payload = shard.read(number)
                yield f"  {number}: {len(payload):,} bytes, {_content(payload, shard.format)}"
            except (AdapterError, ContentError) as error:
                yield f"  {number}: damaged: {error}"
    yield from suggested(_examples(files))


def _files(path: str, source: ImageSource, count: int) -> Iterator[str]:
    """Describe the classes and the first images under a path."""
    names = source.classes or []
    classes = "" if source.classes is None else f", classes: {len(names):,}"
    yield f"{clean(path)}: {counted(len(source), 'image')}{classes}"
    if names:
        images = np.bincount(source.labels, minlength=len(names)).tolist()
        for label, name in enumerate(names[:count]):
            yield f"  label {label}, {name!r}: {counted(images[label], 'image')}"
        if len(names) > count:
            yield f"  and {len(names) - count} more"
    numbers = range(min(count, len(source)))
    source.fetch(np.arange(len(numbers)))
    for number in numbers:
        try:
            encoded = source.read(number)
            shown = _labelled(encoded, source.labels[number])
            yield f"  {number}: {source.files.named(number)}, {len(encoded):,} bytes, {shown}"
        except (AdapterError, OSError) as error:
            yield f"  {number}: {error}"


def _examples(files: RecordFiles) -> Iterator[memoryview]:
    """Yield some records that may be Examples or SequenceExamples, but not images with labels."""
    for number in range(min(_LOOKED_AT, len(files))):
        shard, own = files.locate(number)
        with contextlib.suppress(AdapterError):
            payload = shard.read(own)
            if shard.format == tfrecord.NAME and guessed(payload, shard.format) != "image":
                yield payload


def _images_of(folders: Sequence[str], records: Sequence[str], count: int) -> list[Any]:
    """Decode the first images of all files and folders, with their labels; skip what is none."""
    decoder = ImageDecoder(TILE_PIXELS, crop="center", channels=3)
    sources: list[Any] = [open_images(path, decode=decoder) for path in folders]
    if records:
        sources.append(open_records(records, decode=decoder))
    images: list[Any] = []
    for source in sources:
        with source:
            for number in range(len(source)):
                if len(images) == count:
                    break
                with contextlib.suppress(AdapterError, ContentError, OSError):
                    images.append(source.sample(number))
    return images


def _content(payload: memoryview, format: str) -> str:
    kind = guessed(payload, format)
    if kind == "image":
        return _labelled(*Images(None, {}).split(payload, format))
    if kind == "example":
        features = example.decode(payload)
        return ", ".join(f"{name}: {_values(value)}" for name, value in sorted(features.items()))
    if kind is None and format == tfrecord.NAME:
        with contextlib.suppress(ContentError):
            if lists := example.feature_lists(payload):
                steps = {str(name, "utf-8", "replace"): len(each) for name, each in lists.items()}
                return ", ".join(f"{name}: {count} steps" for name, count in sorted(steps.items()))
    if tensor := tensor_in(payload):
        return f"a serialized tensor of {tensor}, {tensor.remedy}"
    more = ", ..." if len(payload) > _SHOWN_BYTES else ""
    return f"{bytes(payload[:_SHOWN_BYTES])!r}{more}"


def _kind(image: memoryview | bytes) -> str | None:
    head = bytes(image[:8])
    return next((name for begin, name in _KINDS.items() if head.startswith(begin)), None)


def _image(image: memoryview | bytes) -> str:
    """Describe an image by its format and size."""
    name = _kind(image) or "image"
    try:
        if name.startswith("raw"):
            array = decode(image)
            return f"{name}, {array.dtype} {array.shape}"
        height, width = size_of(image)
    except ContentError as error:
        return f"{name}, damaged: {error}"
    return f"{name} of {height} x {width}"


def _labelled(image: memoryview | bytes, label: Any) -> str:
    shown = label.tolist() if isinstance(label, (np.ndarray, np.generic)) else label
    return f"label {shown}, {_image(image)}"


def _values(values: example.FeatureValues) -> str:
    if isinstance(values, np.ndarray):
        shown = values[:4].tolist()
        return f"{values.dtype} {shown}" + (f" and {len(values) - 4} more" * (len(values) > 4))
    first = values[0] if values else b""
    if tensor := tensor_in(memoryview(first)):
        return f"serialized tensor {tensor}"
    if _kind(first):
        return f"{len(values)} x {_image(first)}"
    if len(values) == 1 and len(first) <= _SHOWN_BYTES:
        return repr(first)
    return f"{len(values)} x bytes of length {[len(value) for value in values[:4]]}"
