"""``Feature``: declares a feature of a tf.train.Example, whose values become one array.

``field_of`` makes a ``Field`` from it, or from a TensorFlow specification. Those are recognised by
class name: TensorFlow isn't imported.
"""

from __future__ import annotations

import math
import operator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from adapters.images import ImageDecoder
from adapters.records import example

_TEXTS = {str: str, bytes: bytes, "str": str, "bytes": bytes}
_MOST_BYTES = (1 << 31) - 1
_REMEDY = 'Feature("float32", (3,)), an ImageDecoder or tf.io.FixedLenFeature([3], tf.float32)'


@dataclass(frozen=True)
class Feature:
    """Feature of a tf.train.Example as an array of one dtype and shape.

    Args:
        dtype: Dtype of the array. Floating-point features are read from an Example's ``float_list``
            of float32, or from its ``int64_list``, as integers and ``"bool"`` are, whose values
            must fit, and ``bytes`` and ``str`` (UTF-8) from its ``bytes_list``, as Python objects.
            With ``stored="raw"``, numbers may have any fixed size; ``">u2"`` means big-endian
            numbers, which become native.
        shape: Shape of the array; ``()`` for one value, which becomes a NumPy scalar. ``None`` as
            its first number means that lengths vary between samples. In a tf.train.SequenceExample,
            such a feature is looked up in ``feature_lists`` first, where each step has the rest of
            the shape, and then in ``context``.
        stored: ``"values"``, the Example's own list; ``"raw"``, the array's bytes as one value of
            its ``bytes_list``, in C order, little-endian; or ``"tensor"``, the result of
            ``tf.io.serialize_tensor``, as one such value.
        default: Replaces the feature in Examples without it: a value, or an array of ``shape``. If
            None, a missing feature is an error. For variable lengths with a ``default``, a missing
            feature is an empty array, and ``SafeSequence`` and ``gluon_loader`` pad the arrays of a
            batch to the longest, if nothing transforms samples one by one.

    Raises:
        TypeError: A dtype, shape or default of the wrong type.
        ValueError: An invalid dtype, shape or default.

    Example:
        >>> from adapters import Feature
        >>> Feature("uint8", (28, 28, 1), stored="raw").shape
        (28, 28, 1)
    """

    dtype: Any
    shape: Any = ()
    _: KW_ONLY
    stored: Literal["values", "raw", "tensor"] = "values"
    default: Any = None

    def __post_init__(self) -> None:
        keep = object.__setattr__  # Normalises fields of a frozen dataclass.
        keep(self, "dtype", _dtype(self.dtype))
        keep(self, "shape", _shape(self.shape))
        if self.stored not in ("values", "raw", "tensor"):
            raise ValueError(
                'stored must be "values" (the Example\'s own list), "raw" (bytes) or "tensor" '
                f"(tf.io.serialize_tensor), got {self.stored!r}"
            )
        sides = [side for side in self.shape if side is not None]
        item = 1 if self.is_text else self.dtype.itemsize
        if math.prod(sides) * item > _MOST_BYTES:
            raise ValueError(
                f"shape must be of at most 2 GiB, as Protocol Buffers' messages, got {self.shape}"
            )
        if self.stored != "values" and self.is_text:
            raise ValueError(
                f'stored="{self.stored}" must have a dtype of numbers, whose bytes these are, got '
                f'{self.dtype.__name__}; bytes themselves are stored="values"'
            )
        if self.stored == "values" and not self.is_text and self.dtype.kind == "c":
            raise ValueError(
                f'dtype must be integer, floating-point or "bool", got {self.dtype}: an Example '
                'has no list of complex numbers; stored="raw" takes them'
            )
        keep(self, "default", self._plain(self.default))

    @property
    def is_text(self) -> bool:
        """True if values are ``bytes`` or ``str``."""
        return self.dtype in (bytes, str)

    def _plain(self, default: Any) -> Any:
        """Convert the default to nested tuples, which are immutable."""
        if default is None:
            return None
        if self.is_text:
            array = np.array(default, object)
            for value in array.ravel():
                if not isinstance(value, self.dtype):
                    raise TypeError(
                        f"default must be of {self.dtype.__name__} like the feature, got {value!r}"
                    )
        else:
            array = _cast(default, self.dtype)
        shape = self.shape
        if array.shape and (None in shape or array.shape != shape):
            rule = "one value, with which arrays are filled up" if None in shape else f"of {shape}"
            raise ValueError(f"default must be {rule}, got one of shape {array.shape}")
        return _tuples(array.tolist())


@dataclass(frozen=True, eq=False)
class Field:
    """Feature of a sample, and where it is stored."""

    name: str  # In the sample.
    key: bytes  # Name in the record.
    kind: int  # Of the list that holds it.
    dtype: np.dtype[Any]  # Of the sample's array, native; object for strings.
    shape: tuple[int, ...] = ()  # Of the sample's array, without a first axis that varies.
    varies: bool = False  # The length of the first axis.
    raw: np.dtype[Any] | None = None  # Of numbers stored as bytes; None for lists, and tensors.
    text: type | None = None  # ``bytes`` or ``str``; None for numbers.
    needed: bool = True  # An Example without it is an error.
    default: NDArray[Any] | None = None  # Value if missing, or fill value for variable lengths.
    decoder: ImageDecoder | None = None  # Makes an array from an image.
    target: Any = None  # ``targets.Follower``, which makes it from several fields, its parts.
    part_of: str | None = None  # Kind of target that this is a part of, for errors.
    is_tensor: bool = False  # Stored as a serialized tensor.
    is_strict: bool = False  # Of TensorFlow's specification, for which floats are no integers.

    @property
    def count(self) -> int:
        """Number of values in a sample, or in one step of it if the length varies."""
        return math.prod(self.shape)

    @property
    def sides(self) -> tuple[int, ...]:
        """Shape of a sample's values, -1 for an axis that varies."""
        return (-1, *self.shape) if self.varies else self.shape

    @property
    def is_fixed(self) -> bool:
        """True if all samples have numbers of one shape, which can be gathered."""
        by_itself = self.text is not None or self.decoder is not None or self.is_tensor
        return not self.varies and not by_itself and self.target is None

    @property
    def leaf(self) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
        """Shape and dtype of each sample's array; None if not fixed."""
        if self.decoder is not None:
            return None if self.decoder.shape is None else (self.decoder.shape, self.decoder.dtype)
        return (self.shape, self.dtype) if self.is_fixed else None


def field_of(name: str, key: str, given: Any) -> Field:
    """Make the field for one entry of the mapping."""
    if isinstance(given, ImageDecoder):
        return Field(name, key.encode(), example.BYTES_LIST, given.dtype, decoder=given)
    needed: bool | None = None
    is_strict = not isinstance(given, Feature)
    if is_strict:
        given, key, needed = _of_tensorflow(name, key, given)
    shape: tuple[Any, ...] = given.shape
    varies = None in shape
    shape = shape[1:] if varies else shape
    stored = np.dtype(object if given.is_text else given.dtype)
    if given.stored == "raw" and stored.byteorder == "=":
        stored = stored.newbyteorder("<")
    kind = example.FLOAT_LIST if stored.kind == "f" else example.INT64_LIST
    default = None
    if given.default is not None:
        default = np.array(given.default, stored.newbyteorder("="))
        default = default if varies else np.broadcast_to(default, shape)
    return Field(
        name,
        key.encode(),
        example.BYTES_LIST if given.stored != "values" or given.is_text else kind,
        stored.newbyteorder("="),
        shape,
        varies,
        stored if given.stored == "raw" else None,
        given.dtype if given.is_text else None,
        default is None if needed is None else needed,
        default,
        is_tensor=given.stored == "tensor",
        is_strict=is_strict,
    )


def _of_tensorflow(name: str, key: str, given: Any) -> tuple[Feature, str, bool | None]:
    """Convert a TensorFlow specification to a ``Feature``, its record name, and ``needed``.

    None as ``needed`` means: needed if there is no default.
    """
    kind = type(given).__name__
    if kind == "SparseFeature":
        raise ValueError(
            f"decode[{name!r}] must be read as it is stored, got a SparseFeature: give its index "
            "and its value features, each as Feature(..., (None,)), and join them in transform"
        )
    if kind not in ("FixedLenFeature", "FixedLenSequenceFeature", "RaggedFeature", "VarLenFeature"):
        raise TypeError(
            f"decode[{name!r}] must say what the feature is, like {_REMEDY}, got {given!r}"
        )
    dtype: Any = getattr(given.dtype, "name", given.dtype)
    dtype = bytes if dtype in ("string", bytes) else np.dtype(dtype)
    if dtype not in (bytes, np.dtype(np.int64), np.dtype(np.float32)):
        raise ValueError(
            f"decode[{name!r}] must be of float32, int64 or string, as TensorFlow's own are, got "
            f"{given.dtype!r}; a Feature takes other dtypes"
        )
    if kind in ("RaggedFeature", "VarLenFeature"):
        if getattr(given, "partitions", ()):
            raise ValueError(
                f"decode[{name!r}] must be a RaggedFeature without partitions, got "
                f"{given.partitions!r}: give the features of the partitions by themselves"
            )
        own = getattr(given, "value_key", None)
        if own and key not in (name, own):
            raise ValueError(
                f"fields must not rename {name!r}, whose RaggedFeature has value_key={own!r}, got "
                f"{key!r}; leave one of them out"
            )
        key = own or key
        return Feature(dtype, (None,)), key, False
    shape = (given.shape,) if isinstance(given.shape, (int, np.integer)) else tuple(given.shape)
    default = given.default_value
    if kind == "FixedLenSequenceFeature":
        if default is None:
            default = b"" if dtype is bytes else 0
        return Feature(dtype, (None, *shape), default=default), key, not given.allow_missing
    if None in shape:
        raise ValueError(
            f"decode[{name!r}] must have a shape of numbers, as in TensorFlow, got {shape}; "
            "Feature(..., shape=(None,)) has lengths that vary"
        )
    if default is not None:
        array = np.asarray(default, object if dtype is bytes else None)
        if dtype is bytes:
            each = [value.encode() if isinstance(value, str) else value for value in array.ravel()]
            array = np.array([*each, None], object)[:-1].reshape(array.shape)
            default = array[()]
        default = array.reshape(shape) if array.size == math.prod(shape) else default
    return Feature(dtype, shape, default=default), key, None


def _dtype(dtype: Any) -> Any:
    if isinstance(dtype, (str, type)) and dtype in _TEXTS:
        return _TEXTS[dtype]
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = np.dtype(object)
    if dtype is None or found.kind not in "biufc" or found.itemsize > 16:
        raise TypeError(f'dtype must be of numbers, like "float32", or bytes or str, got {dtype!r}')
    return found


def _shape(shape: Any) -> tuple[int | None, ...]:
    if shape is None or isinstance(shape, (int, np.integer)):
        shape = (shape,)
    try:
        sides = tuple(None if side is None else operator.index(side) for side in shape)
    except TypeError:
        raise TypeError(
            f"shape must be whole numbers, like (28, 28), got {shape!r}; None comes first"
        ) from None
    if None in sides[1:]:
        raise ValueError(f"shape may have None, for a varying length, only first, got {sides}")
    if any(side is not None and side < 1 for side in sides):
        raise ValueError(f"shape must have numbers >= 1, got {sides}")
    return sides


def _cast(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert a default to this dtype, if its values fit."""
    try:
        given = np.asarray(value)
        fits = given.dtype.kind in ("biufc" if dtype.kind == "c" else "biuf")
        if dtype.kind in "biu":
            low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            # One by one: NumPy turns a list of large integers into floats.
            given = np.asarray(value, object)
            fits &= all(low <= each <= high and each == int(each) for each in given.flat)
        else:
            with np.errstate(over="ignore"):
                fits &= bool((np.isfinite(given.astype(dtype)) == np.isfinite(given)).all())
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ValueError(f"default must be of {dtype} like the feature, got {value!r}")
    return given.astype(dtype.newbyteorder("="))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
