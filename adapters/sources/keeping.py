"""Sources whose samples are kept decoded: ``cache=Cache(folder, limit, decoded=True)``.

What a cache has is valid for a source, for what is done before anything is drawn, and for a version
of the slots. Of these the name of its file is made, by who opens the source, but for the last:

    records   path, size and time of each file, or URL and ETag; where its records lie; ``verify``
    images    the paths, in their order; size and time of each are in its entry
    features  name, key, dtype, shape, default, ...; of pictures, what ``halves`` has as ``before``
    all       "-kernel", where that of the process decodes that fills it: OpenCV's values may differ
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256 as _hash
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images import ImageDecoder
from adapters.images.halves import halves
from adapters.records import RecordFiles, Shard
from adapters.records.inflated import InflatedObject
from adapters.records.remotefile import RemoteFile
from adapters.remote import Cache, Head, clean, is_url
from adapters.sources.beforehand import Beforehand, Member
from adapters.sources.contents import Content, Custom, Images
from adapters.sources.examples import Examples
from adapters.sources.examplesource import ExampleSource
from adapters.sources.features import Field
from adapters.sources.filereading import FileReading, Reading
from adapters.sources.files import Files
from adapters.sources.imagefiles import ImageSource
from adapters.sources.objectreading import ObjectReading
from adapters.sources.records import RecordSource
from adapters.sources.slotparts import Array, Numbers, Texts

# Of what stands in slots, and of the values that decoding gives: another one is another file.
_VERSION = 2


def kept_records(files: RecordFiles, content: Content, cache: Cache) -> RecordSource:
    """Records whose samples are kept, as they are before anything is drawn.

    Args:
        files: The records.
        content: What they become.
        cache: Where they are kept.

    Raises:
        ValueError: ``content`` is no picture and no features, or has boxes or points.
    """
    whole = RecordFiles.of(files.shards)  # Which nobody closes.
    before: RecordSource
    apart: Callable[[Any], Sequence[Any]]
    if isinstance(content, Examples):
        first = Examples([_first_half(field) for field in content.fields], content.as_tuple)
        before, apart = ExampleSource(whole, first), first.apart
        members = [_member(field) for field in content.fields]
        done: list[Any] = [_told(field) for field in first.fields]
        decoders = [field.decoder for field in first.fields]
    else:
        images, after = _halves_of(content)
        before, apart = RecordSource(whole, images), list
        members = [Member(Array(False), after), Member(Array(True), exact=before.label)]
        done = [repr(images.decoder), *images.names]
        decoders = [images.decoder]
    done.append(all(shard.verify for shard in files.shards))
    versions = [_version(shard, cache) for shard in files.shards]
    kept = None
    if None not in versions:
        name = _name("records", versions, len(files), done)
        about = _about([shard.storage.name for shard in files.shards], len(files), decoders)
        kept = Beforehand(cache, name, about, before, members, apart)
    if isinstance(content, Examples):
        return ExampleSource(files, content, kept)
    return RecordSource(files, content, kept)


def kept_images(
    files: Files,
    labels: NDArray[Any],
    classes: list[str] | None,
    content: Images | Custom,
    reading: Reading | None,
    cache: Cache,
) -> ImageSource:
    """Images whose pictures are kept, as they are before anything is drawn; as ``ImageSource``.

    Raises:
        ValueError: ``content`` is a function.
    """
    images, after = _halves_of(content)
    before = ImageSource(files, labels, None, images, reading)
    name = _name("images", [files.digest()], len(files), [repr(images.decoder)])
    about = _about(files, len(files), [images.decoder])
    members = [Member(Array(False), after)]
    stamps = _Stamps(files, FileReading(files) if reading is None else reading, cache)
    kept = Beforehand(cache, name, about, before, members, _first, stamps)
    return ImageSource(files, labels, classes, content, reading, kept)


class _Stamps:
    """What tells versions of files apart.

    Args:
        files: They are named by number.
        reading: Of an object, it knows the version when it was read.
        cache: It is told of what can't be kept.
    """

    def __init__(self, files: Files, reading: Reading, cache: Cache) -> None:
        self._files, self._reading, self._cache = files, reading, cache

    def early(self, number: int) -> bool:
        """Whether a file is looked at before it is read, as it may change meanwhile."""
        return not is_url(os.fsdecode(self._files.path(number)))

    def of(self, numbers: Sequence[int]) -> list[int | None]:
        """A number for each, other ones for other versions; None where there is no version."""
        texts = self._reading.stamps(numbers)
        if (
            numbers
            and isinstance(self._reading, ObjectReading)
            and not self._reading.tells_versions
        ):
            self._cache.for_version(self._files.named(numbers[0]), Head(0, "", 0))  # Which says so.
            return [None] * len(texts)
        return [None if text == "missing" else _number(text) for text in texts]


def _first(sample: Sequence[Any]) -> Sequence[Any]:
    return sample[:1]


def _halves_of(content: Content) -> tuple[Images, ImageDecoder | None]:
    """What is done before anything is drawn, and the decoder that does the rest."""
    decoder = getattr(content, "decoder", None)
    if not isinstance(content, Images) or type(decoder) not in (ImageDecoder, type(None)):
        raise ValueError(
            'cache=Cache(..., decoded=True) needs decode="image", an ImageDecoder or a mapping of '
            "features, which say what they do; what a function or a subclass makes isn't kept, as "
            "nobody could tell when it changes"
        )
    if decoder is None:
        return content, None
    before, after = halves(decoder)
    return content.with_decoder(before), after


def _first_half(field: Field) -> Field:
    if field.target is not None:
        raise ValueError(
            f"cache=Cache(..., decoded=True) must have no Boxes or Points beside it, got "
            f"decode[{field.name!r}]: give a cache that keeps what is read, cache=folder"
        )
    if field.decoder is None:
        return field
    if type(field.decoder) is not ImageDecoder:
        _halves_of(Images(field.decoder, {}))
    before, _ = halves(field.decoder)
    return replace(field, decoder=before, dtype=before.dtype)


def _member(field: Field) -> Member:
    if field.decoder is not None:
        return Member(Array(False), halves(field.decoder)[1])
    if field.text is not None:
        return Member(Texts(field.text))
    leaf = field.leaf
    return Member(Array(False) if leaf is None else Numbers(leaf))


def _told(field: Field) -> list[Any]:
    """All that says what becomes of a feature, but its name in the sample."""
    return [
        field.key.hex(),
        field.kind,
        str(field.dtype),
        list(field.shape),
        field.varies,
        str(field.raw),
        getattr(field.text, "__name__", None),
        field.needed,
        None if field.default is None else repr(field.default.tolist()),
        repr(field.decoder),
        field.is_tensor,
    ]


def _version(shard: Shard, cache: Cache) -> list[Any] | None:
    """What tells a file from others and from its other versions; None where nobody says."""
    where = _hash(np.ascontiguousarray(shard.offsets).data).hexdigest()
    storage: Any = shard.storage
    storage = storage.remote if isinstance(storage, InflatedObject) else storage
    if not isinstance(storage, RemoteFile):
        return [os.path.abspath(storage.name), *storage.version, where]
    head = storage.head
    if cache.for_version(storage.url, head) is None:
        return None
    url = clean(storage.url) if head.is_etag else storage.url
    return [url, head.version, head.size, where]


def _name(*parts: Any) -> str:
    """A file's name, of all that must be the same."""
    text = json.dumps([_VERSION, parts])
    return _hash(text.encode()).hexdigest()[:32]


def _number(text: str) -> int:
    return int.from_bytes(_hash(text.encode()).digest()[:8], "little")


def _about(names: Sequence[str], count: int, decoders: Iterable[ImageDecoder | None]) -> str:
    """The same for people."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    done = ", ".join(str(each) for each in decoders if each is not None) or "as stored"
    return f"{names[0]}{more}, {count} samples, {done}"
