"""``fields_of``: turns a mapping for ``decode=`` into the fields of a sample."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from adapters.images import ImageDecoder
from adapters.sources.features import Field, field_of
from adapters.sources.followers import target_of
from adapters.sources.targets import Boxes, Points

# Prefix of features with a value for each box, in the object-detection layout.
_PER_BOX = "image/object/"
# Words in feature names that mean coordinates in the image.
_SIDES = {"xmin", "ymin", "xmax", "ymax"}
_BOXES = {"box", "boxes", "bbox", "bboxes"}
_POINTS = {"keypoint", "keypoints", "landmark", "landmarks"}


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
