"""Columns: the record format that ``materialize`` writes and reads.

Each leaf of a sample is a feature of a tf.train.Example:

    raw      numbers of one dtype and shape, or of variable length: their bytes, little-endian
    text     str or bytes, one or several
    array    numbers of any dtype and shape, in NPY format
    image    an image that is already decoded, in NPY format
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.images import ImageDecoder, npy
from adapters.records import example
from adapters.sources.arrays import paths_of, refuse_masked
from adapters.sources.examples import Examples
from adapters.sources.features import Feature, Field, field_of
from adapters.structure import as_array, unflatten

RAW, TEXT, ARRAY, IMAGE = "raw", "text", "array", "image"


class LeafChanged(Exception):
    """Raised if the leaf in a place has another dtype or shape than its column."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


@dataclass(frozen=True)
class Column:
    """Column of one leaf over all samples."""

    name: str  # Of the feature.
    kind: str  # ``RAW``, ``TEXT``, ``ARRAY`` or ``IMAGE``.
    dtype: str = ""  # Of raw numbers; "str" or "bytes" for text.
    shape: tuple[int, ...] = ()  # Of raw numbers and text, without the axis that varies.
    varies: bool = False  # The length of the first axis.
    default: Any = None  # Fill value for variable lengths in a batch, or None.
    is_python: bool = False  # Leaves are Python numbers.

    @classmethod
    def of_leaf(cls, name: str, leaf: Any) -> Column:
        """Make the column for leaves like this one."""
        if isinstance(leaf, (str, bytes)):
            return cls(name, TEXT, "str" if isinstance(leaf, str) else "bytes")
        array = _numbers(name, leaf)
        is_python = type(leaf) in (bool, int, float, complex)
        if not array.size:
            return cls(name, ARRAY)
        dtype = array.dtype.newbyteorder("<").str
        return cls(name, RAW, dtype, array.shape, is_python=is_python)

    @classmethod
    def of_field(cls, name: str, field: Field, leaf: Any) -> Column:
        """Make the column for a feature that was already read as ``leaf``."""
        if field.decoder is not None:
            return cls(name, IMAGE)
        if not (field.varies or field.text):
            return cls.of_leaf(name, leaf)
        kind, dtype, default = RAW, field.dtype.newbyteorder("<").str, field.default
        if field.text is not None:
            kind, dtype = TEXT, field.text.__name__
        value = None if default is None or not field.varies else default.tolist()
        value = value.decode("latin-1") if isinstance(value, bytes) else value
        return cls(name, kind, dtype, field.shape, field.varies, value)

    def encoded(self, place: int, leaf: Any) -> Any:
        """Encode the leaf in a place as a feature of an Example."""
        if self.kind == TEXT:
            texts = np.asarray(leaf, object)
            kind = str if self.dtype == "str" else bytes
            if not all(isinstance(each, kind) for each in texts.flat):
                raise TypeError(
                    f"samples must have {self.dtype} as {self.name!r} each time, got {leaf!r}"
                )
            return [each.encode() if isinstance(each, str) else bytes(each) for each in texts.flat]
        array = _numbers(self.name, leaf)
        if self.kind != RAW:
            return npy.write(array)
        stored = np.dtype(self.dtype)
        if array.dtype != stored.newbyteorder("=") or array.shape[self.varies :] != self.shape:
            raise LeafChanged(place)
        return array.astype(stored, copy=False).tobytes()

    def field(self, decoder: ImageDecoder | None) -> Field:
        """Field that reads this column; ``decoder`` has the remaining work on an image."""
        if decoder is not None:
            return field_of(self.name, self.name, decoder)
        if self.kind == ARRAY:
            return field_of(self.name, self.name, Feature(bytes))
        default = self.default
        if self.dtype == "bytes" and default is not None:
            default = default.encode("latin-1")
        shape = (None, *self.shape) if self.varies else self.shape
        stored: Any = "values" if self.kind == TEXT else "raw"
        feature = Feature(self.dtype, shape, stored=stored, default=default)
        # An empty list of texts is stored as none.
        return replace(field_of(self.name, self.name, feature), needed=not self.varies)


class Columns(Examples):
    """Samples read from columns, in their original structure.

    ``decoders`` have the remaining work on images, by leaf number.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        decoders: dict[int, ImageDecoder],
        treedef: Any,
    ) -> None:
        fields = [column.field(decoders.get(at)) for at, column in enumerate(columns)]
        super().__init__(fields, as_tuple=True)  # In leaf order.
        self.as_tuple = treedef == tuple(range(len(columns)))
        self.treedef = treedef
        self._arrays = [at for at, column in enumerate(columns) if column.kind == ARRAY]
        self._python = [at for at, column in enumerate(columns) if column.is_python]
        self.python_numbers = bool(self._python)

    def joined(self, values: Sequence[Any]) -> Any:
        """Assemble a sample from its leaves."""
        leaves = list(values)
        for place in self._arrays:
            leaves[place] = npy.read(memoryview(leaves[place])).copy()[()]
        for place in self._python:
            if not np.ndim(leaves[place]):
                leaves[place] = leaves[place].item()
        return unflatten(self.treedef, leaves)


def names_of(treedef: Any) -> list[str]:
    """Name each leaf by its path, such as ``"image"``, ``"0"`` or ``"x/0"``."""
    _as_json(treedef)  # A structure that can't be stored is an error at once.
    names = ["/".join(map(str, path)) for path in paths_of(treedef)]
    return names if len(set(names)) == len(names) else list(map(str, range(len(names))))


def described(columns: Sequence[Column], treedef: Any) -> dict[str, Any]:
    """Describe columns and structure for a JSON file."""
    return {"columns": list(map(asdict, columns)), "structure": _as_json(treedef)}


def columns_in(description: dict[str, Any]) -> tuple[list[Column], Any]:
    """Read columns and structure from the result of ``described``."""
    columns = [Column(**{**each, "shape": tuple(each["shape"])}) for each in description["columns"]]
    return columns, _of_json(description["structure"])


def record(columns: Sequence[Column], leaves: Sequence[Any]) -> bytes:
    """Encode a sample as an Example."""
    values = {
        column.name: column.encoded(place, leaf)
        for place, (column, leaf) in enumerate(zip(columns, leaves))
    }
    return example.encode(values)


def _numbers(name: str, leaf: Any) -> NDArray[Any]:
    refuse_masked(leaf)
    array = np.asarray(as_array(leaf))
    if array.dtype.kind not in "biufc":
        raise TypeError(
            f"samples must have arrays, numbers, str or bytes as {name!r}, got "
            f"{type(leaf).__name__}: a transform makes one of them"
        )
    return array


def _as_json(treedef: Any) -> Any:
    if treedef is None or isinstance(treedef, int):
        return treedef
    if type(treedef) is tuple:
        return list(map(_as_json, treedef))
    if not isinstance(treedef, dict):
        raise TypeError(
            f"samples must be of tuples and dicts, got a {type(treedef).__name__}: a transform "
            "makes one of them"
        )
    for name in treedef:
        if type(name) is not str:
            raise TypeError(f"samples must be of dicts with texts as keys, got {name!r}")
    return {name: _as_json(member) for name, member in treedef.items()}


def _of_json(text: Any) -> Any:
    if isinstance(text, dict):
        return {name: _of_json(member) for name, member in text.items()}
    return tuple(map(_of_json, text)) if isinstance(text, list) else text
