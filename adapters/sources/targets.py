"""``Boxes`` and ``Points``: targets that follow an image's crop, resizing and flip.

``Follower`` makes them. With an ``ImageDecoder``, the encoded image is one of the parts: given its
size, a generator in the same state draws the same crop again. ``fields_of`` turns a mapping for
``decode=`` into the fields of a sample.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adapters.arguments import check_flag
from adapters.errors import ContentError
from adapters.images import ImageDecoder, boxes, size_of
from adapters.images.geometry import Crop
from adapters.records import irheader
from adapters.sources.features import Feature, Field, field_of

_BBOX = "image/object/bbox/"
_KEYPOINT = "image/object/keypoint/"
_GEOMETRY = ("size", "crop", "resize_short", "area", "ratio", "flip")
# Prefix of features with a value for each box, in the object-detection layout.
_PER_BOX = "image/object/"
# Words in feature names that mean coordinates in the image.
_SIDES = {"xmin", "ymin", "xmax", "ymax"}
_BOXES = {"box", "boxes", "bbox", "bboxes"}
_POINTS = {"keypoint", "keypoints", "landmark", "landmarks"}
_ROUNDING = 1e-6
# Boxes may extend beyond the edge of their image, but not by its size.
_MOST_RELATIVE = 2


@dataclass(frozen=True)
class Boxes:
    """Bounding boxes that follow their image's crop, resizing and flip; for ``decode={...}``.

    A box is clipped to the image that the ``ImageDecoder`` of the same mapping makes. It is
    dropped, with its class, if less than ``min_visible`` of its area is left, or none; so is a box
    without an area. Coordinates are continuous: the right edge of an image is its width. EXIF
    orientation is ignored, as in the decoder: boxes belong to the image as it is stored. Without an
    ``ImageDecoder``, nothing is clipped.

    A sample has a dict in Keras's layout: ``{"boxes": float32 (n, 4), "classes": int64 (n,)}``;
    without ``classes`` and ``per_box``, the array of boxes. ``collate=pad((None, -1))`` makes a
    batch from samples ``(image, boxes)``.

    Args:
        format: Format in the record, with Keras's names: ``"xyxy"``, ``"yxyx"``, ``"xywh"``
            (COCO's) and ``"center_xywh"`` in pixels of the stored image; with the prefix
            ``"rel_"``, relative to it, 0 to 1.
        keys: Names in the record: four, one per coordinate in the order of ``format``, or one name,
            for ``n * 4`` values. None: the names of TensorFlow's object-detection layout,
            ``"image/object/bbox/ymin"`` and so on.
        classes: Name of the classes in the record, integers; None for none.
        output: Format in the sample; pixels are those of the decoded image. Keras's layers take the
            same name as ``bounding_box_format``.
        min_visible: Least fraction of a box's area that must be inside the decoded image, 0 to 1.
        per_box: Further features with a value for each box, by their names in the record; they are
            dropped with it. ``{"image/object/is_crowd": Feature("int64")}``.
        image: Name, in the mapping, of the ``ImageDecoder`` to follow, if several differ.
        optional: Read a record without these features as one without boxes, instead of an error.
            Features without values mean no boxes in any case.
        stored: ``"values"``; or ``"im2rec"``, see ``im2rec``.

    Raises:
        TypeError: An argument of the wrong type.
        ValueError: An argument out of range.

    Example:
        >>> from adapters import Boxes, ImageDecoder
        >>> decode = {
        ...     "image/encoded": ImageDecoder(512, crop="random_resized", flip=True),
        ...     "boxes": Boxes(min_visible=0.25),
        ... }  # of open_records("train-*.tfrecord", decode=decode)
    """

    format: str = "rel_yxyx"
    keys: Any = None
    _: KW_ONLY
    classes: str | None = "image/object/class/label"
    output: str = "xyxy"
    min_visible: float = 0.0
    per_box: Mapping[str, Feature] | None = None
    image: str | None = None
    optional: bool = False
    stored: Literal["values", "im2rec"] = "values"

    def __post_init__(self) -> None:
        begins, ends = ({"x": f"{_BBOX}x{end}", "y": f"{_BBOX}y{end}"} for end in ("min", "max"))
        _check(self, boxes.BOX_FORMATS, begins, ends)
        share = self.min_visible
        if isinstance(share, bool) or not isinstance(share, (int, float, np.number)):
            raise TypeError(f"min_visible must be a number, 0 to 1, got {share!r}")
        if not 0 <= share <= 1:
            raise ValueError(f"min_visible must be a part of a box's area, 0 to 1, got {share!r}")
        if self.classes is not None and not isinstance(self.classes, str):
            raise TypeError(f"classes must be a name in the record or None, got {self.classes!r}")
        if self.stored not in ("values", "im2rec"):
            raise ValueError(f'stored must be "values" or "im2rec", got {self.stored!r}')
        if not isinstance(self.per_box, (Mapping, type(None))):
            raise TypeError(
                'per_box must map names in the record to features, like {"image/object/is_crowd": '
                f'Feature("int64")}}, got {self.per_box!r}'
            )
        if self.stored == "im2rec" and (len(self.keys) > 1 or self.classes or self.per_box):
            raise ValueError(
                'stored="im2rec" must have one name in keys, without classes and per_box, which '
                "are in the label: Boxes.im2rec() sets them"
            )
        for name, feature in (self.per_box or {}).items():
            if name in ("boxes", "classes") or name in (self.classes, *self.keys):
                raise ValueError(f"per_box must have other names than the boxes, got {name!r}")
            if not isinstance(feature, Feature) or feature.stored != "values":
                raise TypeError(
                    f"per_box[{name!r}] must be a Feature of values, like "
                    f'Feature("int64"), got {feature!r}'
                )

    @classmethod
    def im2rec(
        cls,
        key: str = "label",
        *,
        output: str = "xyxy",
        min_visible: float = 0.0,
        image: str | None = None,
    ) -> Boxes:
        """Boxes in the detection labels that MXNet's ``im2rec --pack-label`` writes.

        A label is ``[header width, object width, more of a header ..., objects ...]``, and each
        object is ``[class, xmin, ymin, xmax, ymax, more ...]``, relative to the image.
        ``ImageDetIter`` and gluon-cv's ``RecordFileDetection`` read the same layout. If objects
        have more than five numbers, a sample has the rest as ``"extra"``, float32 ``(n, object
        width - 5)``.

        Args:
            key: Name of the label in the record; in RecordIO, ``"label"`` is that of the IRHeader.
            output: As in ``Boxes``.
            min_visible: As in ``Boxes``.
            image: As in ``Boxes``.

        Example:
            >>> from adapters import Boxes, ImageDecoder
            >>> decode = {"image": ImageDecoder(300, flip=True), "label": Boxes.im2rec()}
        """
        return cls(
            "rel_xyxy",
            key,
            classes=None,
            output=output,
            min_visible=min_visible,
            image=image,
            stored="im2rec",
        )


@dataclass(frozen=True)
class Points:
    """Points, such as keypoints, that follow their image's crop, resizing and flip.

    A sample has ``{"points": float32 (n, 2), "visible": bool (n,)}``. Every point keeps its place
    in the array. Points outside of the decoded image aren't visible, nor are those whose
    coordinates are no numbers. A flip moves points and doesn't swap their names: a left eye stays
    the left eye, even if the mirrored image shows it on the right. EXIF orientation is ignored, and
    without an ``ImageDecoder`` only the format changes.

    Args:
        format: Format in the record: ``"xy"`` or ``"yx"`` in pixels of the stored image,
            ``"rel_xy"`` or ``"rel_yx"`` relative to it, 0 to 1.
        keys: Names in the record: two, one per coordinate in the order of ``format``, or one name,
            for ``n * 2`` values. None: ``"image/object/keypoint/x"`` and ``.../y``.
        output: Format in the sample; pixels are those of the decoded image.
        image: As in ``Boxes``.
        optional: As in ``Boxes``.

    Raises:
        TypeError: An argument of the wrong type.
        ValueError: An argument out of range.

    Example:
        >>> from adapters import ImageDecoder, Points
        >>> decode = {"image": ImageDecoder(96, flip=True), "eyes": Points("xy", "eyes/xy")}
    """

    format: str = "rel_xy"
    keys: Any = None
    _: KW_ONLY
    output: str = "xy"
    image: str | None = None
    optional: bool = False

    def __post_init__(self) -> None:
        _check(self, boxes.POINT_FORMATS, {"x": _KEYPOINT + "x", "y": _KEYPOINT + "y"})


def _check(given: Boxes | Points, formats: Sequence[str], *names: Mapping[str, str]) -> None:
    """Check the arguments that both kinds have, and set ``keys``; ``names`` are the usual ones."""
    for argument in ("format", "output"):
        value = getattr(given, argument)
        if value not in formats:
            raise ValueError(f"{argument} must be one of {', '.join(formats)}, got {value!r}")
    keys, count = given.keys, 2 * len(names)
    if keys is None:
        order = given.format.removeprefix("rel_")
        if not set(order) <= {"x", "y"}:
            raise ValueError(
                f"keys must name where {given.format!r} is in the record: {count} names, or one "
                f"of n * {count} values, got None"
            )
        keys = [names[place // 2][axis] for place, axis in enumerate(order)]
    keys = (keys,) if isinstance(keys, str) else tuple(keys) if isinstance(keys, Sequence) else keys
    if not isinstance(keys, tuple) or not all(isinstance(key, str) for key in keys):
        raise TypeError(f"keys must be names in the record, got {given.keys!r}")
    if len(keys) not in (1, count) or len(set(keys)) < len(keys):
        raise ValueError(
            f"keys must be {count} names in the order of the format, or one name, got {keys!r}"
        )
    object.__setattr__(given, "keys", keys)  # Sets a field of a frozen dataclass.
    if not isinstance(given.image, (str, type(None))):
        raise TypeError(f"image must be a name in the mapping or None, got {given.image!r}")
    check_flag("optional", given.optional)


class Follower:
    """Makes the target of a sample from its parts.

    With a decoder, whose image is followed, the encoded image is the last part.
    """

    def __init__(
        self, given: Boxes | Points, parts: Sequence[Field], decoder: ImageDecoder | None
    ) -> None:
        self.given, self.parts, self.decoder = given, parts, decoder
        self.draws = decoder is not None and decoder.draws

    def made(self, values: Sequence[Any], rng: np.random.Generator | None) -> Any:
        """Make the target; ``rng`` is in the state that the image's decoder gets."""
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
            values, classes = [rows[:, 1:5]], rows[:, 0]
            if not (np.trunc(classes) == classes).all():
                raise ContentError("classes that are whole numbers", f"{classes.tolist()}")
            more["classes"] = classes.astype(np.int64)
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
    """Make the field of a target from its entry in a mapping."""
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
    """Check that these can be boxes of this format."""
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
    """Check that pixels and relative coordinates aren't confused, if that is obvious."""
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


def fields_of(
    decode: Mapping[str, Any], fields: Mapping[str, str] | None, outputs: Sequence[str] | None
) -> list[Field]:
    """Make the fields of a sample, in the order of ``outputs`` if given."""
    if not decode:
        raise ValueError('decode must name at least one feature, like {"label": Feature("int64")}')
    for name in decode:
        if not isinstance(name, str):
            raise TypeError(f"decode must have strings as names of features, got {name!r}")
    renamed = fields or {}
    for name, key in renamed.items():
        if name not in decode:
            raise ValueError(f"fields must rename features of decode, got {name!r}")
        if not isinstance(key, str):
            raise TypeError(f"fields must have strings as names in the record, got {key!r}")
    for text in [*decode, *renamed.values()]:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"names of features must be text that UTF-8 has, as Examples do, got {text!r}"
            ) from None
    names = list(decode) if outputs is None else _outputs(outputs, decode)
    made = [
        target_of(name, given, decode, renamed)
        if isinstance(given := decode[name], (Boxes, Points))
        else field_of(name, renamed.get(name, name), given)
        for name in names
    ]
    _check_targets(decode, made)
    return made


def _check_targets(decode: Mapping[str, Any], fields: Sequence[Field]) -> None:
    """Reject coordinates that would not follow their cropped or flipped image."""
    decoders = [each for each in decode.values() if isinstance(each, ImageDecoder)]
    moving = next((each for each in decoders if each.crop is not None or each.flip), None)
    drops = any(isinstance(each, Boxes) for each in decode.values())
    for field in fields:
        key = str(field.key, "utf-8")
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
    if field.decoder is not None or field.target is not None or field.text is not None:
        return None
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
