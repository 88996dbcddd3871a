"""Nested values as JSON and arrays.

A tuple becomes ``{"tuple": [...]}``, a dict ``{"dict": [[key, value], ...]}``, an array
``{"array": its index}`` and bytes ``{"bytes": the index of their array}``. Numbers, strings, None
and lists stay as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = list[NDArray[Any]]


def to_json(value: Any, arrays: Arrays) -> Any:
    """Convert a value to JSON and arrays.

    Args:
        value: None, a bool, number, string, bytes, array, or lists, tuples and dicts of these.
        arrays: The list that arrays are appended to, without a copy if possible.

    Raises:
        TypeError: ``value`` contains another type, or an array of objects or records.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise TypeError("an array of objects can't be saved")
        entry: dict[str, Any] = {"array": len(arrays)}
        if array.dtype.kind == "V":  # For example bfloat16, which .npy files can't express.
            entry["dtype"] = array.dtype.name
            if array.dtype.names is not None:
                raise TypeError("an array of records can't be saved: save its fields")
            whole = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
            array = whole.reshape(array.shape)
        if isinstance(value, np.generic):
            entry["scalar"] = True
        arrays.append(array)
        return entry
    if isinstance(value, bytes):
        arrays.append(np.frombuffer(value, np.uint8))
        return {"bytes": len(arrays) - 1}
    if isinstance(value, dict):
        return {"dict": [[to_json(each, arrays) for each in pair] for pair in value.items()]}
    if type(value) in (list, tuple):
        members = [to_json(each, arrays) for each in value]
        return members if isinstance(value, list) else {"tuple": members}
    raise TypeError(
        f"a {type(value).__name__} can't be saved: use None, numbers, texts, bytes, NumPy arrays, "
        "and lists, tuples and dicts of these"
    )


def from_json(entry: Any, arrays: Arrays) -> Any:
    """Restore the value that ``to_json`` converted."""
    if isinstance(entry, list):
        return [from_json(each, arrays) for each in entry]
    if not isinstance(entry, dict):
        return entry
    if "dict" in entry:
        return {from_json(k, arrays): from_json(v, arrays) for k, v in entry["dict"]}
    if "tuple" in entry:
        return tuple(from_json(each, arrays) for each in entry["tuple"])
    if "bytes" in entry:
        return arrays[entry["bytes"]].tobytes()
    array = arrays[entry["array"]]
    if "dtype" in entry:
        array = array.view(np.dtype(entry["dtype"]))
    return array[()] if entry.get("scalar") else array
