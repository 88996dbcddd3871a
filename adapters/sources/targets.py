"""``Boxes`` and ``Points``: targets that follow an image's crop, resizing and flip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np

from adapters.images import boxes
from adapters.sources.features import Feature

_BBOX = "image/object/bbox/"
_KEYPOINT = "image/object/keypoint/"


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
    """Check the arguments that both kinds have, and set ``keys``.

    Args:
        given: The target.
        formats: Formats that exist.
        names: Usual names of x and y, for each point of the target.
    """
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
    if not isinstance(given.optional, bool):
        raise TypeError(f"optional must be True or False, got {given.optional!r}")
