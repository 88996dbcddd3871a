"""``Examples``: decodes the features of a tf.train.Example, for ``decode={name: Feature, ...}``.

It works on one record at a time. ``recordrows`` does the same for a batch at once, and leaves
records that it can't read to this module.

MXNet's records have label and ids in an IRHeader, and the payload after it. ``"label"``, ``"id"``
and ``"id2"`` are in the header; every other name is the payload. Labels are float32 there; whole
ones can be read as integers.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import ContentError
from adapters.records import envelope, example, irheader
from adapters.records.formats import CODECS
from adapters.records.tensor import Tensor, refuse_tensor, tensor_in
from adapters.sources.decoders import Content, EncodedImage, check_alike
from adapters.sources.features import Field
from adapters.sources.suggestion import REMEDY

LABEL, ID, ID2 = b"label", b"id", b"id2"
_NUMBER_AT = {ID: 8, ID2: 16}
_LABEL_AT = 4
_NUMBERS = ("int64", "uint64")
_IMAGES_REMEDY = f"several images: give Feature(bytes, (None,)) and {REMEDY}"


class Examples(Content):
    """Decodes samples: dicts or tuples of the ``fields``, in this order."""

    def __init__(self, fields: Sequence[Field], as_tuple: bool) -> None:
        self.names = [field.name for field in fields]
        self.as_tuple = as_tuple
        # In leaf order: members of a dict are sorted by name.
        ordered = fields if as_tuple else sorted(fields, key=lambda field: field.name)
        self.fields = list(ordered)
        numbers = {field.name: number for number, field in enumerate(self.fields)}
        named = {name: numbers[name] for name in self.names}
        # Sample structure with leaf numbers as leaves.
        self.treedef: Any = tuple(named.values()) if as_tuple else named
        self._read: list[Field] = []
        self._places: list[slice | int] = []
        for field in self.fields:
            first, parts = len(self._read), [field] if field.target is None else field.target.parts
            self._read += parts
            self._places.append(first if field.target is None else slice(first, len(self._read)))
        self._varies = any(field.varies for field in self._read)
        makers = [maker for field in fields for maker in (field.decoder, field.target)]
        self.draws = any(maker is not None and maker.draws for maker in makers)
        decoders = [field.decoder for field in self._read if field.decoder is not None]
        self.moves = any(each.crop is not None or each.flip for each in decoders)
        if any(each.interpolation == "nearest" for each in decoders):
            check_alike(decoders)  # An image and its mask.

    def sample(self, payload: memoryview, format: str, rng: np.random.Generator | None) -> Any:
        """Decode a sample; its images and targets are cropped and flipped alike."""
        values = self.values(payload, format)
        state = rng.bit_generator.state if rng is not None and self.draws else None
        for place, field in enumerate(self.fields):
            make = field.decoder.decode if field.decoder else field.target and field.target.made
            if not make:
                continue
            if state is not None:
                assert rng is not None
                rng.bit_generator.state = state
            # A copy: the file may be truncated while its image is decoded.
            value = bytes(values[place]) if field.decoder else values[place]
            try:
                values[place] = make(value, rng)
            except ContentError as error:
                raise named_error(field, error) from error
        return self.joined(values)

    def image_in(self, payload: memoryview, format: str) -> EncodedImage | None:
        """Return the first encoded image of a record and its decoder; None without images."""
        for field in self.fields:
            if field.decoder is not None:
                return Examples([field], True).values(payload, format)[0], field.decoder
        return None

    @property
    def label_in(self) -> Callable[[memoryview, str], Any] | None:
        """Reader of the label: the second member of tuples, or the feature of that name."""
        found = [field for field in self.fields if field.name in ("label", envelope.LABEL)]
        found = self.fields[1:2] if self.as_tuple else found
        classes = [field for field in found if field.leaf and field.leaf[1].kind in "iu"]
        if len(classes) != 1 or classes[0].shape or classes[0].decoder is not None:
            return None
        label = Examples(classes, True)
        return lambda payload, format: label.values(payload, format)[0]

    def joined(self, values: Sequence[Any]) -> Any:
        """Assemble a sample from the values of ``fields``."""
        if self.as_tuple:
            return tuple(values)
        return {name: values[place] for name, place in self.treedef.items()}

    def with_fields(self, fields: Sequence[Field]) -> Examples:
        """Return samples of the same structure with other fields of the same names."""
        named = {field.name: field for field in fields}
        return Examples([named[name] for name in self.names], self.as_tuple)

    def values(self, payload: memoryview, format: str) -> list[Any]:
        """Read the values of the features from a record, in the order of ``fields``.

        Images are encoded bytes, targets a list of their parts' values.
        """
        size, fields = irheader.HEADER.size, self._read
        # A header has room for as many labels as it says.
        is_headed = CODECS[format].envelope.has_header and len(payload) >= size
        if is_headed and size + 4 * irheader.HEADER.unpack_from(payload)[0] <= len(payload):
            fields = list(map(in_header, fields))
            read = functools.partial(_behind_header, payload, self.moves)
        else:
            read = functools.partial(_in_example, payload, *self._spans(payload))
        values = []
        for field in fields:
            try:
                values.append(read(field))
            except ContentError as error:
                raise named_error(field, error) from error
        return [values[place] for place in self._places]

    def _spans(
        self, payload: memoryview
    ) -> tuple[dict[bytes, example.Span], dict[bytes, list[example.Span]]]:
        """Locate the features of an Example, and the feature lists if they are needed."""
        try:
            found = example.features(payload)
            lists = example.feature_lists(payload) if self._varies else {}
        except ContentError as error:
            raise ContentError(f"a tf.train.Example: {error.expected}", error.found) from error
        if not found and not lists:
            refuse_tensor(payload)
        return found, lists


def named_error(field: Field, error: ContentError) -> ContentError:
    """Add the feature's name to an error."""
    key = str(field.key, "utf-8", "replace")
    stored = f" (stored as {key!r})" if key not in ("", field.name) else ""
    return ContentError(f"feature {field.name!r}{stored} with {error.expected}", error.found)


def put(values: NDArray[Any], column: NDArray[Any], rows: Any = ...) -> None:
    """Write numbers into rows of a column, rounded if necessary."""
    # Overflow becomes infinity, as in TensorFlow; fractions were rejected before. NaN stays NaN.
    with np.errstate(over="ignore", invalid="ignore"):
        column[rows] = values


def misfits(field: Field, values: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Mask of the numbers that don't fit the feature's dtype; None if all fit."""
    dtype = field.dtype
    if field.raw is not None and (field.raw.kind, dtype.kind) == ("u", "i"):  # MXNet's ids.
        wrong = values > np.uint64(np.iinfo(dtype).max)
        return wrong if wrong.any() else None
    if dtype.kind == "f" and values.dtype == np.int64:
        with np.errstate(all="ignore"):
            held = values.astype(dtype).astype(np.float64)
            wrong = (held != values) | (held.astype(np.int64) != values)
        return wrong if wrong.any() else None
    are_integers = field.kind == example.INT64_LIST and dtype != np.int64
    are_floats = field.kind == example.FLOAT_LIST and dtype.kind in "biu"  # Behind MXNet's header.
    if not (are_integers or are_floats):
        return None
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if are_integers:
        wrong = (values < low) | (values > min(high, np.iinfo(np.int64).max))
    else:
        wrong = (values != np.trunc(values)) | ~np.isfinite(values)
        wrong |= (values < float(low)) | (values.astype(np.float64) >= float(high) + 1)
    return wrong if wrong.any() else None


def _in_example(
    payload: memoryview,
    found: dict[bytes, example.Span],
    lists: dict[bytes, list[example.Span]],
    field: Field,
) -> Any:
    if field.varies and field.key in lists:
        return _of_steps(field, payload, lists[field.key])
    entry = found.get(field.key)
    held = example.List(0, 0, 0) if entry is None else example.list_in(payload, entry)
    if held.kind:
        return _of_list(field, payload, held)
    if field.decoder is not None:  # To report an image that is in a feature list.
        lists = lists or example.feature_lists(payload)
    return _missing(field, entry, found, lists)


def _behind_header(payload: memoryview, moves: bool, field: Field) -> Any:
    held = _values_in(field, payload)
    if field.kind == example.BYTES_LIST:
        return _of_bytes(field, [held])
    values = np.frombuffer(held, "<f4").astype(np.float32)
    # A detection label begins with two widths, so it can't be cut into rows.
    if field.part_of is None and (moves or (field.varies and field.shape)):
        irheader.refuse_objects(values)
    return _converted(field, values)


def _of_list(field: Field, payload: memoryview, held: example.List) -> Any:
    kind = field.kind
    if (kind, held.kind) == (example.FLOAT_LIST, example.INT64_LIST) and not field.is_strict:
        kind = held.kind  # Whole numbers, such as pixel coordinates.
    is_bytes = held.kind == example.BYTES_LIST
    stored = example.strings(payload, held.begin, held.end) if is_bytes else []
    if held.kind != kind:
        found = example.LISTS.get(held.kind, "no values")
        found = (_as_tensor(stored[0]) if len(stored) == 1 else None) or found
        raise ContentError(example.LISTS[field.kind], found)
    if is_bytes:
        return _of_bytes(field, stored)
    read = example.floats if held.kind == example.FLOAT_LIST else example.integers
    return _converted(field, read(payload, held.begin, held.end))


def _converted(field: Field, values: NDArray[Any]) -> Any:
    """Convert numbers to the feature's dtype and shape."""
    _check_count(field, len(values))
    wrong = misfits(field, values)
    if wrong is not None:
        raise ContentError(f"values of {field.dtype}", str(values[wrong][0]))
    sides = field.sides
    array: NDArray[Any] = np.empty(values.size, field.dtype).reshape(sides)
    put(values.reshape(sides), array)
    return array[()]


def _of_steps(field: Field, payload: memoryview, steps: list[example.Span]) -> NDArray[Any]:
    """Stack the steps of a feature list; each has the shape after the first axis."""
    one = dataclasses.replace(field, varies=False)
    array = np.empty((len(steps), *field.shape), field.dtype)
    for place, step in enumerate(steps):
        try:
            array[place] = _of_list(one, payload, example.list_in(payload, step))
        except ContentError as error:
            expected = f"values in step {place} of its list, {error.expected}"
            raise ContentError(expected, error.found) from error
    return array


def _missing(
    field: Field,
    entry: example.Span | None,
    features: Iterable[bytes],
    lists: Mapping[bytes, Any],
) -> Any:
    if field.part_of is not None and entry is not None:
        return np.empty((0, *field.shape), field.dtype)
    found = [*features, *lists]
    if field.decoder is not None and field.key in lists:
        raise ContentError(
            f"one image ({_IMAGES_REMEDY})", f"a feature list of {len(lists[field.key])} steps"
        )
    if field.needed or field.decoder is not None:
        listed = ", ".join(sorted(str(name, "utf-8", "replace") for name in found)) or "none"
        there = "one without values" if entry is not None else f"the features {listed}"
        remedy = "default= stands in for them, fields= renames"
        if field.part_of is not None:
            remedy = (
                f"{field.part_of}(optional=True) takes a record without them for one of none, "
                "keys= and classes= are their names"
            )
        raise ContentError(f"values ({remedy})", there)
    if field.varies:
        return np.empty((0, *field.shape), field.dtype)
    assert field.default is not None
    return field.default.copy()[()]


def _of_bytes(field: Field, values: list[memoryview]) -> Any:
    if field.text is not None:
        _check_count(field, len(values))
        texts = np.empty(len(values), object)
        for place, value in enumerate(values):
            try:
                texts[place] = str(value, "utf-8") if field.text is str else bytes(value)
            except UnicodeDecodeError as error:
                raise ContentError("UTF-8", str(error)) from error
        return texts.reshape(field.sides)[()]
    if len(values) != 1:
        several = values and field.decoder is not None
        remedy = f" ({_IMAGES_REMEDY})" if several else ""
        raise ContentError(f"one value{remedy}", f"{len(values)} values")
    (value,) = values
    if field.is_tensor:
        return _of_tensor(field, tensor_in(value))
    if field.raw is None:
        return value
    size = field.count * field.raw.itemsize
    if len(value) % size if field.varies else len(value) != size:
        whole = "a multiple of " * field.varies
        found = _as_tensor(value) or f"{len(value)} bytes"
        raise ContentError(f"{whole}{size} bytes, {_outline(field)}", found)
    wrong = misfits(field, numbers := np.frombuffer(value, field.raw))
    if wrong is not None:
        expected = f'values of {field.dtype} (Feature("uint64") has them all)'
        raise ContentError(expected, str(numbers[wrong][0]))
    array = of_raw(field, np.frombuffer(value, np.uint8))
    return array.reshape(field.sides).copy()[()]


def _of_tensor(field: Field, tensor: Tensor | None) -> NDArray[Any]:
    if tensor is None:
        raise ContentError("a tensor that tf.io.serialize_tensor has made", "other bytes")
    shape = tensor.shape[1:] if field.varies else tensor.shape
    if tensor.dtype != field.dtype.name or shape != field.shape or field.varies > len(tensor.shape):
        raise ContentError(f"a tensor of {_outline(field)}", f"one of {tensor}")
    return tensor.array[()]


def _as_tensor(value: memoryview) -> str | None:
    """Describe a serialized tensor and how to read it; None for other bytes."""
    tensor = tensor_in(value)
    if tensor is None:
        return None
    remedy = 'Feature(..., stored="tensor")' if tensor.is_numeric else "tf.io.parse_tensor"
    return f"a serialized tensor of {tensor}, which {remedy} reads"


def of_raw(field: Field, stored: NDArray[np.uint8]) -> NDArray[Any]:
    """View bytes as numbers of the feature's dtype, without a copy if possible."""
    assert field.raw is not None
    numbers: NDArray[Any] = stored != 0 if field.raw.kind == "b" else stored.view(field.raw)
    return numbers.astype(field.dtype, copy=False)


def _check_count(field: Field, count: int) -> None:
    if count % field.count if field.varies else count != field.count:
        whole = "a multiple of " * field.varies
        raise ContentError(f"{whole}{field.count} values, {_outline(field)}", f"{count} values")


def _outline(field: Field) -> str:
    shape = (None, *field.shape) if field.varies else field.shape
    dtype = field.text.__name__ if field.text is not None else field.raw or field.dtype
    return f"{dtype} {shape}"


def in_header(field: Field) -> Field:
    """Convert a field to the way it is stored in records with an IRHeader."""
    if field.key not in (LABEL, *_NUMBER_AT):
        if field.part_of is not None and field.kind != example.BYTES_LIST:
            raise ContentError(
                f"{field.part_of} of a label in the IRHeader: Boxes.im2rec() reads im2rec's "
                'detection labels, and one name, keys="label", others',
                f"the name {str(field.key, 'utf-8', 'replace')!r}, which it hasn't",
            )
        if field.kind != example.BYTES_LIST:
            raise ContentError(
                f'feature {field.name!r} as bytes, stored="raw" for an array (fields= says which '
                "name is the header's label, id or id2)",
                f"{field.dtype}, stored by its values",
            )
        return field
    if field.kind == example.BYTES_LIST:
        raise ContentError(f"numbers as {field.name!r}, which the header has", "bytes")
    if field.key == LABEL:
        return dataclasses.replace(field, kind=example.FLOAT_LIST)
    if field.varies or field.count != 1 or field.dtype not in _NUMBERS:
        raise ContentError(f"{field.name!r} as one int64 or uint64", f"{field.dtype} {field.shape}")
    return dataclasses.replace(field, kind=example.BYTES_LIST, raw=np.dtype("<u8"))


def _values_in(field: Field, payload: memoryview) -> memoryview:
    """Bytes of a field in a record with a header."""
    flag, label, _, _ = irheader.HEADER.unpack_from(payload)
    behind = irheader.HEADER.size
    if field.key in _NUMBER_AT:
        return payload[_NUMBER_AT[field.key] : _NUMBER_AT[field.key] + 8]
    if field.key != LABEL:
        return payload[behind + 4 * flag :]
    if flag:
        return payload[behind : behind + 4 * flag]
    # For zero labels, MXNet's ``pack`` writes a header with a label of 0.
    is_empty_list = not label and field.varies and field.count > 1
    return payload[:0] if is_empty_list else payload[_LABEL_AT : _LABEL_AT + 4]
