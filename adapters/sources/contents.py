"""What a record becomes: ``decode=`` of ``open_records``.

A ``Content`` makes a sample of a record's bytes. ``Images`` can do so straight into rows of a
batch, where all samples have one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import ImageDecoder, size_of
from adapters.images import decode as decode_image
from adapters.records import CODECS, example, irheader
from adapters.records.envelope import IMAGE, LABEL, no_feature
from adapters.records.tensor import refuse_tensor
from adapters.sources.origin import Origin

_GEOMETRY = ("crop", "area", "ratio", "flip")
_SHORT = {"image": IMAGE, "label": LABEL}


class Content(Protocol):
    """From a record's bytes to a sample."""

    draws: bool
    """Whether a sample depends on random numbers."""

    def sample(self, payload: memoryview, format: str, rng: np.random.Generator | None) -> Any:
        """The sample.

        Raises:
            ContentError: The record holds something else.
        """
        ...


class Raw:
    """The record's bytes."""

    draws = False

    def sample(self, payload: memoryview, format: str, rng: Any) -> bytes:
        """A copy, which doesn't keep the file mapped."""
        return bytes(payload)


class Custom:
    """What a function of the user's makes of the record's bytes."""

    draws = False

    def __init__(self, function: Callable[[bytes], Any]) -> None:
        self.function = function

    def sample(self, payload: memoryview, format: str, rng: Any) -> Any:
        """What the function returns."""
        return self.function(bytes(payload))


class Features:
    """The features of a tf.train.Example.

    Args:
        fields: What a feature is called in the sample, and how in the record.
    """

    draws = False

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = dict(fields)

    def sample(self, payload: memoryview, format: str, rng: Any) -> dict[str, example.Feature]:
        """A list of bytes, float32 ``(values,)`` or int64 ``(values,)`` for each name."""
        features = example.decode(payload)
        if not features:
            refuse_tensor(payload)
        renamed = {}
        for name, stored in self._fields.items():
            if stored not in features:
                raise no_feature(stored, features)
            renamed[name] = features[stored]
        for stored in self._fields.values():
            features.pop(stored, None)
        return {**features, **renamed}


class Images:
    """An image and its label, as the format has them in a record: its ``Codec.envelope``.

    Args:
        decoder: Makes the array; None takes the image as it is.
        fields: What the features "image/encoded" and "image/class/label" are called in the record.
    """

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
        """The same with another decoder."""
        return Images(decoder, dict(zip((IMAGE, LABEL), self.names)))

    def sample(
        self, payload: memoryview, format: str, rng: np.random.Generator | None
    ) -> tuple[NDArray[Any], Any]:
        """(uint8 (height, width, 3) or what the decoder makes, label)."""
        encoded, label = self.split(payload, format)
        return self.image(encoded, rng), label

    def image(self, encoded: memoryview, rng: np.random.Generator | None) -> NDArray[Any]:
        """uint8 (height, width, 3), or what the decoder makes, of an encoded image.

        Raises:
            ContentError: It is none, or a damaged one.
        """
        if self.decoder is not None:
            return self.decoder.decode(encoded, rng)
        array = decode_image(encoded)
        # A raw array lies in the file, which it would keep mapped, and nobody may write there.
        return array if array.flags.writeable else array.copy("K")

    def split(self, payload: memoryview, format: str) -> tuple[memoryview, Any]:
        """The encoded image, where it lies, and the label.

        Returns:
            The label is a Python number where there is one, else float32 or int64 ``(labels,)``.

        Raises:
            ContentError: No IRHeader, no Example, or one without the features.
        """
        encoded, label = CODECS[format].envelope.split(payload, self.names)
        if self.moves and isinstance(label, np.ndarray):
            irheader.refuse_objects(label)
        return encoded, label


def cut_out(
    place: Origin, decoder: ImageDecoder | None, encoded: bytes, rng: np.random.Generator
) -> Origin:
    """The same place, with the image and what the decoder cuts out of it.

    Raises:
        ContentError: It is none, or a damaged one.
    """
    crop = None
    if decoder is not None and (decoder.crop is not None or decoder.flip):
        crop = decoder.crop_of(*size_of(encoded), rng)
    return place._replace(encoded=encoded, crop=crop)


def identity(payload: memoryview, format: str) -> int:
    """The id of an image's record: of its IRHeader, or of its feature "image/id"; 0 without one.

    Raises:
        ContentError: Neither.
    """
    return CODECS[format].envelope.identity(payload)


def content_of(decode: Any, fields: Mapping[str, str] | None) -> Content:
    """What ``decode=`` and ``fields=`` ask for.

    Raises:
        TypeError: ``fields`` is no mapping.
        ValueError: An unknown ``decode``, or fields that it has no use for.
    """
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
    """Let decoders pass that crop and flip alike.

    Raises:
        ValueError: Two of them don't.
    """
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
    """What part of an image a crop takes: its aspect, and how large it is; None of all of it."""
    if decoder.crop not in ("center", "random"):
        return None
    assert decoder.size is not None
    height, width = decoder.size
    short = decoder.resize_short
    return Fraction(height, width), None if short is None else Fraction(short, height)


def check_fields(fields: Any) -> None:
    """Let what ``fields=`` may be pass.

    Raises:
        TypeError: It is no mapping.
    """
    if fields is not None and not isinstance(fields, Mapping):
        raise TypeError(
            'fields must map names to those in the record, like {"image/encoded": "jpeg"}, got '
            f"{fields!r}"
        )


def guessed(payload: memoryview, format: str) -> str | None:
    """The ``decode=`` that suits a record: "image", "example" or None."""
    try:
        return CODECS[format].envelope.guessed(payload)
    except ContentError:
        return None
