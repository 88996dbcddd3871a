"""Suggestion of features that fit some Examples, as source code for ``decode=``."""

from __future__ import annotations

import json
from collections.abc import Iterable

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


def suggested(payloads: Iterable[memoryview]) -> list[str]:
    """Lines of a mapping for ``decode=``, ready to paste; empty if nothing is an Example.

    The meaning of bytes that are neither images nor text is unknown: if all have one size, they are
    shown as raw ``uint8``.

    Args:
        payloads: Some records; those that are no Examples are skipped.
    """
    found: dict[str, list[example.List]] = {}
    values: dict[str, list[memoryview]] = {}
    steps: dict[str, list[tuple[example.List, list[memoryview]]]] = {}
    records = 0
    for payload in payloads:
        try:
            lists = [
                (str(name, "utf-8", "replace"), example.list_in(payload, entry))
                for name, entry in example.features(payload).items()
            ]
            counted = [(name, held, _values(payload, held)) for name, held in lists if held.kind]
            listed = _steps(payload)
        except ContentError:
            continue
        records += 1
        for name, held, own in counted:
            found.setdefault(name, []).append(held._replace(begin=0, end=len(own)))
            values.setdefault(name, []).extend(own)
        for name, each in listed:
            steps.setdefault(name, []).extend(each)
    if not found and not steps:
        return []
    lines = ["decode = {"]
    images = [name for name, own in values.items() if _are_images(own)]
    boxes, in_boxes = _boxes(found, values, records) if images else ([], set())
    for name in sorted(found.keys() - in_boxes):
        if len({held.kind for held in found[name]}) > 1:  # No feature takes several types.
            lines.append(f"    # {json.dumps(name)} is of several types")
            continue
        feature = _feature(found[name], values[name], len(found[name]) < records)
        if feature == "ImageDecoder()":
            feature = _decoder(values[name], beside_others=len(images) > 1)
        lines.append(f"    {json.dumps(name)}: {feature},")
        if name in images and not feature.startswith("ImageDecoder("):
            lines.append(f"    # encoded images: {REMEDY}")
    for name in sorted(steps):
        whole = _of_steps(steps[name])
        if whole is not None:
            lines.append(f"    {json.dumps(name)}: {whole},")
            if _are_images([value for _, own in steps[name] for value in own]):
                lines.append(f"    # encoded images: {REMEDY}")
    return [*lines, *boxes, "}"]


def _boxes(
    found: dict[str, list[example.List]], values: dict[str, list[memoryview]], records: int
) -> tuple[list[str], set[str]]:
    """Line of ``Boxes`` for the object-detection layout, and the features that it reads."""
    if not found.keys() >= {*_BBOX}:
        return [], set()
    counts = [held.end for held in found[_BBOX[0]]]
    read = {
        name
        for name, lists in found.items()
        if name.startswith(_OBJECT) and [held.end for held in lists] == counts
    }
    arguments, per_box = [], []
    if _CLASSES not in read or found[_CLASSES][0].kind != example.INT64_LIST:
        arguments.append("classes=None")
        read.discard(_CLASSES)
    for name in sorted(read - {*_BBOX, _CLASSES}):
        dtype = repr(_NUMBERS.get(found[name][0].kind, "")).replace("'", '"')
        if dtype == '""':
            dtype = "str" if all(map(_is_text, values[name])) else "bytes"
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


def _steps(
    payload: memoryview,
) -> list[tuple[str, list[tuple[example.List, list[memoryview]]]]]:
    """Feature lists of a SequenceExample: what each step holds, and its values."""
    found = []
    for name, entries in example.feature_lists(payload).items():
        held = [example.list_in(payload, entry) for entry in entries]
        own = [(each, _values(payload, each) if each.kind else []) for each in held]
        found.append((str(name, "utf-8", "replace"), own))
    return found


def _of_steps(steps: list[tuple[example.List, list[memoryview]]]) -> str | None:
    """Feature of a feature list; None if its steps differ or there are none."""
    kinds, counts = {held.kind for held, _ in steps}, {len(own) for _, own in steps}
    if len(kinds) != 1 or len(counts) != 1:
        return None
    (kind,), (count,) = kinds, counts
    shape = "(None,)" if count == 1 else f"(None, {count})"
    values = [value for _, own in steps for value in own]
    if kind in _NUMBERS:
        return _called(repr(_NUMBERS[kind]), shape, "default=0")
    if all(map(_is_text, values)):
        return _called("str", shape, 'default=""')
    if _are_images(values):
        return _called("bytes", shape)
    if count == 1 and (tensor := _tensor(values)):
        dtype, sides = tensor
        shape = f"(None, {', '.join(map(str, sides))})"
        return _called(f'"{dtype}"', shape, 'stored="tensor"', "default=0")
    sizes = set(map(len, values))
    if count == 1 and len(sizes) == 1:
        return _called('"uint8"', f"(None, {max(sizes)})", 'stored="raw"', "default=0")
    return _called("bytes", shape, 'default=b""')


def _values(payload: memoryview, held: example.List) -> list[memoryview]:
    if held.kind == example.BYTES_LIST:
        return example.strings(payload, held.begin, held.end)
    read = example.floats if held.kind == example.FLOAT_LIST else example.integers
    return [memoryview(b"")] * len(read(payload, held.begin, held.end))


def _feature(lists: list[example.List], values: list[memoryview], is_missing: bool) -> str:
    kind, counts = lists[0].kind, {held.end for held in lists}
    varies = len(counts) > 1 or 0 in counts
    shape = "(None,)" if varies else f"({max(counts)},)" * (counts != {1})
    if kind in _NUMBERS:
        return _called(repr(_NUMBERS[kind]), shape, "default=0" * (is_missing or varies))
    if _are_images(values):
        return "ImageDecoder()" if counts == {1} else _called("bytes", shape)
    if counts == {1} and (tensor := _tensor(values)):
        dtype, sides = tensor
        stored = 'stored="tensor"' + ", default=0" * (is_missing or None in sides)
        return _called(f'"{dtype}"', _shown(sides), stored)
    if all(map(_is_text, values)):
        return _called("str", shape, 'default=""' * is_missing)
    sizes = set(map(len, values))
    if counts == {1} and len(sizes) == 1:
        raw = 'stored="raw"' + ", default=0" * is_missing
        return _called('"uint8"', f"({max(sizes)},)", raw)
    return _called("bytes", shape, 'default=b""' * is_missing)


def _called(*arguments: str) -> str:
    return f"Feature({', '.join(filter(None, arguments))})".replace("'", '"')


def _are_images(values: list[memoryview]) -> bool:
    return bool(values) and all(bytes(each[:8]).startswith(IMAGE_BEGINS) for each in values)


def _tensor(values: list[memoryview]) -> tuple[str, tuple[int | None, ...]] | None:
    """Dtype and shape of serialized tensors; None if some are others, or they differ."""
    tensors = [tensor_in(value) for value in values]
    first = tensors[0] if tensors else None
    if first is None or not first.is_numeric:
        return None
    shapes = {tensor.shape for tensor in tensors if tensor and tensor.dtype == first.dtype}
    if None in tensors or any(tensor.dtype != first.dtype for tensor in tensors if tensor):
        return None
    if len(shapes) == 1:
        return first.dtype, first.shape
    if len({shape[1:] for shape in shapes}) > 1 or () in shapes:
        return None
    return first.dtype, (None, *first.shape[1:])


def _shown(sides: tuple[int | None, ...]) -> str:
    return str(sides) if sides else ""


def _is_text(value: memoryview) -> bool:
    try:
        return str(value, "utf-8").isprintable()
    except UnicodeDecodeError:
        return False
