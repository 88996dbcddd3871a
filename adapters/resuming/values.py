"""Nested values, taken apart into what JSON can hold and arrays, and put together again.

A tuple becomes ``{"tuple": [...]}``, a dict ``{"dict": [[key, value], ...]}``, an array
``{"array": its number}`` and bytes ``{"bytes": the number of their array}``. Numbers, texts, None
and lists stand for themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = list[NDArray[Any]]


def taken_apart(value: Any, arrays: Arrays) -> Any:
    """What JSON can hold of a value.

    Args:
        value: None, a bool, number, text, bytes, array, or lists, tuples and dicts of such.
        arrays: To which arrays are appended; they aren't copied.

    Raises:
        TypeError: It holds something else, or an array of objects or of records.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise TypeError("an array of objects can't be saved")
        kept: dict[str, Any] = {"array": len(arrays)}
        if array.dtype.kind == "V":  # Such as bfloat16, which NumPy's files don't know.
            kept["dtype"] = array.dtype.name
            if array.dtype.names is not None:
                raise TypeError("an array of records can't be saved: save its fields")
            whole = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
            array = whole.reshape(array.shape)
        if isinstance(value, np.generic):
            kept["scalar"] = True
        arrays.append(array)
        return kept
    if isinstance(value, bytes):
        arrays.append(np.frombuffer(value, np.uint8))
        return {"bytes": len(arrays) - 1}
    if isinstance(value, dict):
        pairs = [[taken_apart(each, arrays) for each in pair] for pair in value.items()]
        return {"dict": pairs}
    if type(value) in (list, tuple):
        members = [taken_apart(each, arrays) for each in value]
        return members if isinstance(value, list) else {"tuple": members}
    raise TypeError(
        f"a {type(value).__name__} can't be saved: use None, numbers, texts, bytes, NumPy arrays, "
        "and lists, tuples and dicts of these"
    )


def put_together(kept: Any, arrays: Arrays) -> Any:
    """The value of which ``taken_apart`` made this."""
    if isinstance(kept, list):
        return [put_together(each, arrays) for each in kept]
    if not isinstance(kept, dict):
        return kept
    if "dict" in kept:
        return {put_together(k, arrays): put_together(v, arrays) for k, v in kept["dict"]}
    if "tuple" in kept:
        return tuple(put_together(each, arrays) for each in kept["tuple"])
    if "bytes" in kept:
        return arrays[kept["bytes"]].tobytes()
    array = arrays[kept["array"]]
    if "dtype" in kept:
        array = array.view(np.dtype(kept["dtype"]))
    return array[()] if kept.get("scalar") else array
