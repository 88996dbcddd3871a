"""``Content``: turns a record into a sample, for ``decode=`` of ``open_records``.

``Images`` can also decode straight into rows of a batch if all samples have one shape. ``Decoded``
is the base of sources whose samples a ``Content`` decodes from records or files.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_function
from adapters.errors import ContentError
from adapters.generators import call_with, generator_argument
from adapters.images import ImageDecoder, size_of
from adapters.images import decode as decode_image
from adapters.readahead import Window
from adapters.records import CODECS, RecordFiles, example, irheader
from adapters.records.envelope import IMAGE, LABEL, no_feature
from adapters.records.tensor import refuse_tensor
from adapters.sources.filereader import FileReader
from adapters.sources.source import Origin, Source

_GEOMETRY = ("crop", "area", "ratio", "flip")
_SHORT = {"image": IMAGE, "label": LABEL}
_Self = TypeVar("_Self", bound="Decoded")
EncodedImage = tuple[memoryview, ImageDecoder | None]


class Content(abc.ABC):
    """Converts a record's bytes to a sample."""

    draws = False
    """True if a sample depends on random numbers."""
    decoder: ImageDecoder | None = None
    """Decoder of the samples' images, if they are (image, label)."""
    function: Callable[..., Any] | None = None
    """User function that makes the samples."""

    @abc.abstractmethod
    def sample(self, payload: memoryview, format: str, rng: np.random.Generator | None) -> Any:
        """Decode one sample; a ``ContentError`` if the record holds something else."""

    def image_in(self, payload: memoryview, format: str) -> EncodedImage | None:
        """First encoded image of a record, and its decoder; None without images."""
        return None

    @property
    def label_in(self) -> Callable[[memoryview, str], Any] | None:
        """Reader of the label in a record of a format, and of nothing else; None without one."""
        return None


class Raw(Content):
    """The record's bytes."""

    def sample(self, payload: memoryview, format: str, rng: Any) -> bytes:
        """Return a copy, which doesn't keep the file mapped."""
        return bytes(payload)


class Custom(Content):
    """Result of a user function on the record's bytes."""

    function: Callable[..., Any]

    def __init__(self, function: Callable[..., Any]) -> None:
        check_function("decode", function, "data")
        self.function = function
        self._argument = generator_argument(function)
        self.draws = self._argument is not None

    def sample(self, payload: memoryview, format: str, rng: Any) -> Any:
        """Call the user function, with a generator if it takes one."""
        return call_with(lambda: rng, self._argument, self.function, bytes(payload))


class Features(Content):
    """Features of a tf.train.Example; ``fields`` maps names to those in the record."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.renamed = dict(fields)

    def sample(
        self, payload: memoryview, format: str, rng: Any
    ) -> dict[str, example.FeatureValues]:
        """Map each name to a list of bytes, float32 ``(values,)`` or int64 ``(values,)``."""
        features = example.decode(payload)
        if not features:
            refuse_tensor(payload)
        renamed = {}
        for name, stored in self.renamed.items():
            if stored not in features:
                raise no_feature(stored, features)
            renamed[name] = features[stored]
        for stored in self.renamed.values():
            features.pop(stored, None)
        return {**features, **renamed}


class Images(Content):
    """Image and label, as the record format stores them (``Codec.envelope``)."""

    as_float = False
    """True if some labels are fractions, so that all are floats."""

    def __init__(self, decoder: ImageDecoder | None, fields: Mapping[str, str]) -> None:
        named = {_SHORT.get(name, name): stored for name, stored in fields.items()}
        self.decoder = decoder
        self.draws = decoder is not None and decoder.draws
        self.moves = decoder is not None and (decoder.crop is not None or decoder.flip)
        self.names = named.pop(IMAGE, IMAGE), named.pop(LABEL, LABEL)
        if named:
            raise ValueError(
                f"fields must rename {IMAGE!r} (or 'image') and {LABEL!r} (or 'label') for images, "
                f"got {next(iter(named))!r}"
            )

    def with_decoder(self, decoder: ImageDecoder) -> Images:
        """Return a copy with another decoder."""
        return Images(decoder, dict(zip((IMAGE, LABEL), self.names)))

    def sample(
        self, payload: memoryview, format: str, rng: np.random.Generator | None
    ) -> tuple[NDArray[Any], Any]:
        """Return (uint8 (height, width, 3) or the decoder's array, label)."""
        encoded, label = self.split(payload, format)
        return self.image(encoded, rng), label

    def image(self, encoded: memoryview, rng: np.random.Generator | None) -> NDArray[Any]:
        """Decode an image to uint8 (height, width, 3), or to the decoder's array."""
        if self.decoder is not None:
            # A copy: the file may be truncated while it is decoded.
            return self.decoder.decode(bytes(encoded), rng)
        array = decode_image(encoded)
        # A raw array is a read-only view, which would keep the file mapped.
        return array if array.flags.writeable else array.copy("K")

    def image_in(self, payload: memoryview, format: str) -> EncodedImage:
        """Return the encoded image and its decoder."""
        return self.split(payload, format)[0], self.decoder

    @property
    def label_in(self) -> Callable[[memoryview, str], Any]:
        """Reader of the label."""
        return lambda payload, format: self.split(payload, format)[1]

    def split(self, payload: memoryview, format: str) -> tuple[memoryview, Any]:
        """Split a record into a view of its encoded image, and its label; see ``Envelope``."""
        encoded, label = CODECS[format].envelope.split(payload, self.names)
        if self.moves and isinstance(label, np.ndarray):
            irheader.refuse_objects(label)
        return encoded, float(label) if self.as_float and type(label) is int else label


def cut_out(
    place: Origin, encoded: memoryview, decoder: ImageDecoder | None, rng: np.random.Generator
) -> Origin:
    """Add the encoded image and the decoder's crop to an origin."""
    crop = None
    if decoder is not None and (decoder.crop is not None or decoder.flip):
        crop = decoder.crop_of(*size_of(encoded), rng)
    return place._replace(encoded=bytes(encoded), crop=crop)


def content_of(decode: Any, fields: Mapping[str, str] | None) -> Content:
    """Make the ``Content`` for ``decode=`` and ``fields=``."""
    check_fields(fields)
    if isinstance(decode, ImageDecoder):
        return Images(decode, fields or {})
    if isinstance(decode, str) and decode == "image":
        return Images(None, fields or {})
    if isinstance(decode, str) and decode == "example":
        return Features(fields or {})
    if fields:
        raise ValueError(f'fields are for "image", "example" or an ImageDecoder, got {decode!r}')
    if decode is None:
        return Raw()
    if callable(decode):
        return Custom(decode)
    raise ValueError(
        'decode must be None, "image", "example", an ImageDecoder, a mapping of names to Features '
        f"or a function of bytes, got {decode!r}"
    )


def check_alike(decoders: Sequence[ImageDecoder | None]) -> None:
    """Check that decoders crop and flip alike."""
    known = [decoder for decoder in decoders if decoder is not None]
    for decoder in known[1:]:
        for name in _GEOMETRY:
            first, other = getattr(known[0], name), getattr(decoder, name)
            if first != other:
                raise ValueError(
                    f"decode must crop and flip all images of a sample alike, got {name}={first!r} "
                    f"and {name}={other!r}: give each decoder the same crop, area, ratio and flip"
                )
        if _box(known[0]) != _box(decoder):
            raise ValueError(
                "decode must cut the same box out of all images of a sample, got "
                f"{known[0]!r} and {decoder!r}: give each decoder the same size, and the same "
                "resize_short, or all of these times the same number"
            )


def _box(decoder: ImageDecoder) -> tuple[Fraction, Fraction | None] | None:
    """Aspect ratio and relative size of a crop; None for the whole image."""
    if decoder.crop not in ("center", "random"):
        return None
    assert decoder.size is not None
    height, width = decoder.size
    short = decoder.resize_short
    return Fraction(height, width), None if short is None else Fraction(short, height)


def check_fields(fields: Any) -> None:
    """Check the ``fields=`` argument."""
    if fields is not None and not isinstance(fields, Mapping):
        raise TypeError(
            'fields must map names to those in the record, like {"image/encoded": "jpeg"}, got '
            f"{fields!r}"
        )


def guessed(payload: memoryview, format: str) -> str | None:
    """Guess the ``decode=`` that suits a record: "image", "example" or None."""
    try:
        return CODECS[format].envelope.guessed(payload)
    except ContentError:
        return None


class Decoded(Source):
    """Base class of what ``open_records`` and ``open_images`` return."""

    stored = False
    python_numbers = True

    content: Content
    """Decodes the bytes."""
    _files: Any
    """Where the bytes are: ``RecordFiles`` or a ``FileReader``."""

    def __init__(self, files: RecordFiles | FileReader, content: Content) -> None:
        self._files = files
        self.content = content
        self.draws = content.draws
        self.function = content.function
        self.holds_images = isinstance(content, Images)
        # A plain decoder makes the arrays; a subclass may do anything.
        self.decodes = type(content.decoder) is ImageDecoder
        self.decoder = content.decoder if self.decodes else None
        self.makes_samples = self.function is not None or content.decoder is not self.decoder

    @abc.abstractmethod
    def with_content(self, content: Any) -> Decoded:
        """Return a source of the same bytes with another content."""

    @property
    @abc.abstractmethod
    def version(self) -> str:
        """Fingerprint that changes when the bytes do."""

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._files)

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return these samples, read in file order."""
        self.fetch(np.array([self._number(number) for number in numbers], np.int64))
        samples: list[Any] = [None] * len(numbers)
        for place in np.argsort(numbers, kind="stable").tolist():
            samples[place] = self[numbers[place]]
        return samples

    def read(self, index: int) -> bytes:
        """Return the bytes that a sample is decoded from: a record, or a file.

        Raises:
            IndexError: Out of range.
            OSError: The file can't be read.
            RecordError: The record is damaged, or the file is empty, or no regular file.
        """
        return bytes(self._read(self._number(index)))

    def _read(self, number: int) -> memoryview:
        read: memoryview = self._files.read(number)
        return read

    def read_and_discard(self, numbers: NDArray[np.int64]) -> None:
        """Read bytes in file order and discard them."""
        self.fetch(numbers)
        for number in np.sort(numbers).tolist():
            self.read(number)

    def prefetch(self, numbers: NDArray[np.int64], elsewhere: bool) -> None:
        """Start fetching what is remote."""
        self._files.prefetch(numbers, elsewhere)

    def fetch(self, numbers: NDArray[np.int64]) -> None:
        """Start fetching what is remote, all at once; reading waits for it."""
        self._files.fetch(numbers)

    def prefetch_hint(self, first: int, last: int, window: Window | None = None) -> None:
        """Read these samples ahead."""
        self._files.prefetch_hint(first, last, window)

    @property
    def sample_bytes(self) -> float | None:
        """Average bytes per record, or per file, from some files at equal distances."""
        mean: float | None = self._files.mean_bytes
        return mean

    @property
    def store_is_cached(self) -> bool | None:
        """True if a cache keeps what is fetched from a store; None if all files are local."""
        is_cached: bool | None = self._files.store_is_cached
        return is_cached

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def way(self, transformed: bool) -> str:
        """Human-readable description of how samples are read."""
        at_once = self.unit if transformed or self.leaves is None else "batch"
        return f"{self.unit}s, read and decoded a {at_once} at a time"

    def remedy(self, shape: tuple[int, ...]) -> str:
        """Advice on making arrays of unequal shapes equal; images have three axes."""
        if not isinstance(self.content, Images):
            return super().remedy(shape)
        if len(shape) < 2 or getattr(self.content.decoder, "shape", None):
            return (
                "labels of several lengths need a transform that makes them equally long, or pad()"
            )
        opened = f"open_{'images' if self.unit == 'file' else 'records'}"
        return (
            f"images of several sizes or channels need {opened}(..., decode=ImageDecoder(224)), or "
            "another size, or a transform that pads, crops or resizes them"
        )

    @property
    def users_code(self) -> tuple[Any, ...]:
        """User functions in ``decode``, and decoders of user classes."""
        decoders = [field.decoder for field in getattr(self.content, "fields", ())]
        code = self.function, self.content.decoder, *decoders
        return tuple(each for each in code if type(each) not in (ImageDecoder, type(None)))
