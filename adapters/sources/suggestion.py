"""Suggestion of features that fit some Examples, as source code for ``decode=``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapters.errors import ContentError
from adapters.images import png
from adapters.records import example
from adapters.records.envelope import IMAGE_BEGINS
from adapters.records.tensor import tensor_in

REMEDY = "decode each in transform, [decoder.decode(image, rng) for image in images]"
"""Advice for several images in a sample."""
_NUMBERS = {example.FLOAT_LIST: "float32", example.INT64_LIST: "int64"}
_HEADER_BYTES = 33  # Up to the header chunk of a PNG.
_OBJECT = "image/object/"
_BBOX = tuple(f"{_OBJECT}bbox/{side}" for side in ("ymin", "xmin", "ymax", "xmax"))
_CLASSES = _OBJECT + "class/label"


@dataclass
class _Seen:
    """Lists of one feature in some records, or of one feature list in all of its steps."""

    kinds: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    values: list[memoryview] = field(default_factory=list)  # Of bytes lists.

    def add(self, kind: int, values: Sequence[Any]) -> None:
        self.kinds.append(kind)
        self.counts.append(len(values))
        if kind == example.BYTES_LIST:
            self.values += values


def suggested(payloads: Iterable[memoryview]) -> list[str]:
    """Lines of a mapping for ``decode=``, ready to paste; empty if nothing is an Example.

    Bytes that are neither images nor text and have one size are shown as raw ``uint8``.
    """
    found: dict[str, _Seen] = defaultdict(_Seen)
    steps: dict[str, _Seen] = defaultdict(_Seen)
    records = 0
    for payload in payloads:
        try:
            lists = list(_lists(payload))
        except ContentError:
            continue
        records += 1
        for name, in_steps, kind, values in lists:
            if kind or in_steps:
                (steps if in_steps else found)[name].add(kind, values)
    if not found and not steps:
        return []
    lines = ["decode = {"]
    images = [name for name, seen in found.items() if _are_images(seen.values)]
    boxes, in_boxes = _boxes(found, records) if images else ([], set())
    for name in sorted(found.keys() - in_boxes):
        seen = found[name]
        if len(set(seen.kinds)) > 1:  # No feature takes several types.
            lines.append(f"    # {json.dumps(name)} is of several types")
            continue
        feature = _feature(seen, is_missing=len(seen.counts) < records)
        if feature == "ImageDecoder()":
            feature = _decoder(seen.values, beside_others=len(images) > 1)
        lines += _lines(name, feature, seen)
    for name in sorted(steps):
        seen = steps[name]
        if len(set(seen.kinds)) == len(set(seen.counts)) == 1:
            lines += _lines(name, _feature(seen, in_steps=True), seen)
    return [*lines, *boxes, "}"]


def _lists(payload: memoryview) -> Iterator[tuple[str, bool, int, Sequence[Any]]]:
    """Yield each list: its name, True for a step of a feature list, its kind, and its values."""
    spans = [(name, False, span) for name, span in example.features(payload).items()]
    for name, steps in example.feature_lists(payload).items():
        spans += [(name, True, span) for span in steps]
    for name, in_steps, span in spans:
        held = example.list_in(payload, span)
        values: Sequence[Any] = []
        if held.kind == example.BYTES_LIST:
            values = example.strings(payload, held.begin, held.end)
        elif held.kind:
            values = list(example.values(payload, held))
        yield str(name, "utf-8", "replace"), in_steps, held.kind, values


def _lines(name: str, feature: str, seen: _Seen) -> list[str]:
    lines = [f"    {json.dumps(name)}: {feature},"]
    if _are_images(seen.values) and not feature.startswith("ImageDecoder("):
        lines.append(f"    # encoded images: {REMEDY}")
    return lines


def _boxes(found: dict[str, _Seen], records: int) -> tuple[list[str], set[str]]:
    """Line of ``Boxes`` for the object-detection layout, and the features that it reads."""
    if not found.keys() >= {*_BBOX}:
        return [], set()
    counts = found[_BBOX[0]].counts
    read = {
        name for name, seen in found.items() if name.startswith(_OBJECT) and seen.counts == counts
    }
    arguments, per_box = [], []
    if _CLASSES not in read or found[_CLASSES].kinds[0] != example.INT64_LIST:
        arguments.append("classes=None")
        read.discard(_CLASSES)
    for name in sorted(read - {*_BBOX, _CLASSES}):
        seen = found[name]
        dtype = "str" if all(map(_is_text, seen.values)) else "bytes"
        if seen.kinds[0] in _NUMBERS:
            dtype = f'"{_NUMBERS[seen.kinds[0]]}"'
        per_box.append(f"{json.dumps(name)}: Feature({dtype})")
    if per_box:
        arguments.append(f"per_box={{{', '.join(per_box)}}}")
    if len(counts) < records:
        arguments.append("optional=True")
    return [f'    "boxes": Boxes({", ".join(arguments)}),'], {*_BBOX, *read}


def _decoder(images: list[memoryview], beside_others: bool) -> str:
    """Decoder that keeps the bits of PNGs, and the ids of a mask next to its image."""
    given = ""
    if all(bytes(each[:8]) == png.MAGIC and len(each) > _HEADER_BYTES for each in images):
        colours = [png.colours(each) for each in images]
        if beside_others and {kind for _, kind in colours} <= {png.GREY, png.PALETTE}:
            given = 'channels=1, interpolation="nearest"'
        if any(bits > 8 for bits, _ in colours):
            given += ", " * bool(given) + 'dtype="uint16"'
    return f"ImageDecoder({given})"


def _feature(seen: _Seen, *, in_steps: bool = False, is_missing: bool = False) -> str:
    """Feature of lists of one kind, perhaps steps of a feature list, or missing in records."""
    kind, counts, values = seen.kinds[0], set(seen.counts), seen.values
    varies = not in_steps and (len(counts) > 1 or 0 in counts)
    first = (None,) if in_steps or varies else ()
    shape = first if varies or counts == {1} else (*first, *counts)
    needs_default = in_steps or is_missing
    if kind in _NUMBERS:
        zero = "default=0" * (needs_default or varies)
        return _called(f'"{_NUMBERS[kind]}"', shape, zero)
    if _are_images(values):
        return "ImageDecoder()" if counts == {1} and not in_steps else _called("bytes", shape)
    if counts == {1} and (tensor := _tensor(values)):
        dtype, sides = tensor
        zero = "default=0" * (needs_default or None in sides)
        return _called(f'"{dtype}"', (*first, *sides), 'stored="tensor"', zero)
    if all(map(_is_text, values)):
        return _called("str", shape, 'default=""' * needs_default)
    sizes = set(map(len, values))
    if counts == {1} and len(sizes) == 1:
        zero = "default=0" * needs_default
        return _called('"uint8"', (*first, *sizes), 'stored="raw"', zero)
    return _called("bytes", shape, 'default=b""' * needs_default)


def _called(dtype: str, shape: tuple[int | None, ...], *more: str) -> str:
    arguments = dtype, str(shape) if shape else "", *more
    return f"Feature({', '.join(filter(None, arguments))})"


def _are_images(values: list[memoryview]) -> bool:
    return bool(values) and all(bytes(each[:8]).startswith(IMAGE_BEGINS) for each in values)


def _tensor(values: list[memoryview]) -> tuple[str, tuple[int | None, ...]] | None:
    """Dtype and shape of serialized tensors; None if some are others, or they differ."""
    tensors = [tensor for value in values if (tensor := tensor_in(value)) is not None]
    if not tensors or len(tensors) < len(values) or not tensors[0].is_numeric:
        return None
    dtype, shapes = tensors[0].dtype, {tensor.shape for tensor in tensors}
    if any(tensor.dtype != dtype for tensor in tensors):
        return None
    if len(shapes) == 1:
        return dtype, tensors[0].shape
    if len({shape[1:] for shape in shapes}) > 1 or () in shapes:
        return None
    return dtype, (None, *tensors[0].shape[1:])


def _is_text(value: memoryview) -> bool:
    try:
        return str(value, "utf-8").isprintable()
    except UnicodeDecodeError:
        return False
