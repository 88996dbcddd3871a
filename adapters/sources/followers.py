"""``Follower``: makes ``Boxes`` and ``Points`` that follow the crop of their image.

With an ``ImageDecoder``, the encoded image is one of the parts: given its size, a generator in the
same state draws the same crop again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.images import ImageDecoder, boxes, size_of
from adapters.images.geometry import Crop
from adapters.records import irheader
from adapters.sources.features import Feature, Field, field_of
from adapters.sources.targets import Boxes, Points

_GEOMETRY = ("size", "crop", "resize_short", "area", "ratio", "flip")
_ROUNDING = 1e-6
# Boxes may extend beyond the edge of their image, but not by its size.
_MOST_RELATIVE = 2


class Follower:
    """Makes the target of a sample from its parts.

    Args:
        given: The requested target.
        parts: Features for the target; with a decoder, the encoded image is the last one.
        decoder: Decoder of the image that is followed, or None.
    """

    def __init__(
        self, given: Boxes | Points, parts: Sequence[Field], decoder: ImageDecoder | None
    ) -> None:
        self.given, self.decoder = given, decoder
        self.parts = list(parts)

    @property
    def draws(self) -> bool:
        """True if the target depends on random numbers."""
        return self.decoder is not None and self.decoder.draws

    def made(self, values: Sequence[Any], rng: np.random.Generator | None) -> Any:
        """Make the target.

        Args:
            values: Values of the parts.
            rng: Generator in the state that the image's decoder gets.

        Raises:
            ContentError: The target is invalid, or there is no image.
        """
        crop = None
        if self.decoder is not None:
            *values, encoded = values
            crop = self.decoder.crop_of(*size_of(encoded), rng)
        if isinstance(self.given, Points):
            return self._points(values, crop)
        return self._boxes(values, crop)

    def _points(self, values: Sequence[NDArray[Any]], crop: Crop | None) -> dict[str, Any]:
        points = self._read(values)
        _check_units(points[np.isfinite(points).all(1)], self.given.format)
        points = self._followed(points, crop)
        if crop is None and not boxes.is_relative(self.given.format):
            visible = np.isfinite(points).all(1)
        else:
            visible = boxes.are_inside(points)
        return {"points": self._written(points, crop), "visible": visible}

    def _boxes(self, values: Sequence[NDArray[Any]], crop: Crop | None) -> Any:
        given = self.given
        assert isinstance(given, Boxes)
        more: dict[str, NDArray[Any]] = {}
        if given.stored == "im2rec":
            rows = irheader.objects(values[0])
            values, more["classes"] = [rows[:, 1:5]], _whole(rows[:, 0])
            if rows.shape[1] > 5:
                more["extra"] = rows[:, 5:]
        else:
            count = len(given.keys)
            names = [*(["classes"] if given.classes else []), *(given.per_box or {})]
            more, values = dict(zip(names, values[count:])), values[:count]
        corners = self._read(values)
        _check_boxes(corners, given.format)
        for name, each in more.items():
            if len(each) != len(corners):
                raise ContentError(f"{name!r} of {len(corners)} boxes", f"of {len(each)}")
        corners = self._followed(corners, crop)
        if crop is None:
            keep = boxes.has_area(corners)
        else:
            corners, keep = boxes.clipped(corners, given.min_visible)
        whole = self._written(corners[keep], crop)
        if not more:
            return whole
        return {"boxes": whole, **{name: each[keep] for name, each in more.items()}}

    def _read(self, values: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        columns = 2 if isinstance(self.given, Points) else 4
        if len(values) == 1:
            (flat,) = values
            if flat.size % columns:
                raise ContentError(f"a multiple of {columns} coordinates", f"{flat.size}")
            return boxes.read(flat.reshape(-1, columns), self.given.format)
        lengths = list(map(len, values))
        if len(set(lengths)) > 1:
            raise ContentError(
                f"as many values of each of {', '.join(self.given.keys)}", f"{lengths}"
            )
        return boxes.read(np.stack(values, 1), self.given.format)

    def _followed(self, corners: NDArray[np.float64], crop: Crop | None) -> NDArray[np.float64]:
        """Move coordinates with the crop, relative to the decoded image; unchanged without one."""
        if crop is None:
            return corners
        if not boxes.is_relative(self.given.format):
            corners = boxes.scaled(corners, 1 / crop.image[0], 1 / crop.image[1])
        return boxes.moved(corners, crop)

    def _written(self, corners: NDArray[np.float64], crop: Crop | None) -> NDArray[np.float32]:
        output = self.given.output
        if crop is not None and not boxes.is_relative(output):
            assert self.decoder is not None
            height, width = self.decoder.size or (crop.height, crop.width)
            corners = boxes.scaled(corners, height, width)
        return boxes.written(corners, output)


def target_of(
    name: str, given: Boxes | Points, decode: Mapping[str, Any], fields: Mapping[str, str]
) -> Field:
    """Make the field of a target from its entry in a mapping.

    Args:
        name: Name in the mapping.
        given: The entry.
        decode: The whole mapping.
        fields: Names of features in the record.

    Raises:
        ValueError: The image to follow is missing or ambiguous, or ``fields`` renames several keys.
    """
    kind = type(given).__name__
    image = _image(name, given, decode)
    if image is None and boxes.is_relative(given.format) != boxes.is_relative(given.output):
        other = given.output.removeprefix("rel_")
        other = f"rel_{other}" if boxes.is_relative(given.format) else other
        raise ValueError(
            f"decode[{name!r}] must have output={other!r} without an ImageDecoder in the mapping, "
            f"as {given.output!r} takes the size of the image, got {kind}({given.format!r}, "
            f"output={given.output!r})"
        )
    keys: Sequence[str] = given.keys
    if name in fields:
        if len(keys) > 1:
            raise ValueError(
                f"fields must not rename {name!r}, which has several names in the record, got "
                f"{fields[name]!r}: give them as {kind}(keys=...)"
            )
        keys = (fields[name],)
    features = [(key, Feature("float32", (None,))) for key in keys]
    if isinstance(given, Boxes):
        if given.classes is not None:
            features.append((given.classes, Feature("int64", (None,))))
        for key, feature in (given.per_box or {}).items():
            shape = feature.shape if None in feature.shape else (None, *feature.shape)
            features.append((key, replace(feature, shape=shape)))
    parts = [
        replace(field_of(name, key, feature), needed=not given.optional, part_of=kind)
        for key, feature in features
    ]
    decoder = None
    if image is not None:
        decoder = decode[image]
        parts.append(field_of(image, fields.get(image, image), decoder))
    follower = Follower(given, parts, decoder)
    return Field(name, b"", 0, np.dtype(object), target=follower)


def _image(name: str, given: Boxes | Points, decode: Mapping[str, Any]) -> str | None:
    """Name of the image to follow; None without one."""
    decoders = {key: each for key, each in decode.items() if isinstance(each, ImageDecoder)}
    listed = ", ".join(map(repr, decoders)) or "none"
    if given.image is not None:
        if given.image not in decoders:
            raise ValueError(
                f"image must be the name of an ImageDecoder in the mapping ({listed}), got "
                f"decode[{name!r}] with image={given.image!r}"
            )
        return given.image
    if len({tuple(getattr(each, at) for at in _GEOMETRY) for each in decoders.values()}) > 1:
        raise ValueError(
            f"decode[{name!r}] must say which image it follows, {type(given).__name__}(image=...), "
            f"as {listed} are cropped or resized differently"
        )
    return next(iter(decoders), None)


def _check_boxes(corners: NDArray[np.float64], format: str) -> None:
    """Check that these can be boxes of this format.

    Raises:
        ContentError: They can't.
    """
    finite = np.isfinite(corners).all(1)
    if not finite.all():
        raise ContentError("finite coordinates of boxes", str(corners[~finite][0].tolist()))
    _check_units(corners, format)
    # A box without an area, which is dropped, may be inverted by its last bit.
    sides = corners[:, 2:] - corners[:, :2]
    wrong = (sides < -_ROUNDING * np.maximum(np.abs(corners[:, 2:]), 1)).any(1)
    if wrong.any():
        raise ContentError(
            f"boxes of {format!r} whose left and upper sides are before their right and lower ones "
            "(Boxes(format, keys) says which values are which)",
            f"x, y, x, y of {corners[wrong][0].tolist()}",
        )


def _check_units(values: NDArray[np.float64], format: str) -> None:
    """Check that pixels and relative coordinates aren't confused, if that is obvious.

    Raises:
        ContentError: One is used as the other.
    """
    if not values.size:
        return
    most = float(np.abs(values).max())
    if boxes.is_relative(format) and most > _MOST_RELATIVE:
        other = format.removeprefix("rel_")
        raise ContentError(
            f"coordinates of {format!r}, from 0 to 1 ({other!r} has pixels)", f"{most:g}"
        )
    fractions = values != np.trunc(values)
    if not boxes.is_relative(format) and values.min() >= 0 and most <= 1 and fractions.any():
        raise ContentError(
            f"coordinates of {format!r}, in pixels ('rel_{format}' has parts of the image)",
            f"none above 1, such as {values[fractions][0]:g}",
        )


def _whole(values: NDArray[np.float32]) -> NDArray[np.int64]:
    if not (np.trunc(values) == values).all():
        raise ContentError("classes that are whole numbers", f"{values.tolist()}")
    return values.astype(np.int64)
