"""Conversion of user data to a source of single samples."""

from __future__ import annotations

from typing import Any

from adapters.sources import Source, as_source, refuse_parts_in_a_list

# Classes whose items are whole batches; found by name, so that nothing is imported.
_WHOLE_BATCHES = {"PyDataset", "Sequence"}
_LIBRARIES = {"keras", "tf_keras", "tensorflow"}


def source_given(data: Any, name: str) -> Source:
    """Wrap anything that ``SafeSequence`` takes, except whole batches.

    Args:
        data: The source.
        name: Name of the argument, for errors.

    Raises:
        OSError: The path can't be read.
        RecordError: The path is no record file.
        TypeError: Whole batches, no length, no random access, or an ambiguous list.
        ValueError: Arrays of unequal lengths, or no samples.
    """
    whole = isinstance(data, Source) and data.whole_batches
    if whole or any(
        base.__name__ in _WHOLE_BATCHES and base.__module__.partition(".")[0] in _LIBRARIES
        for base in type(data).__mro__
    ):
        raise TypeError(
            f"{name} must give single samples, got a {type(data).__name__}, whose items are whole "
            "batches: give what these are made of, its arrays or its data set"
        )
    refuse_parts_in_a_list(data)
    if type(data) is tuple:
        while data and data[-1] is None:  # (x, y, None), as in Keras.
            data = data[:-1]
    return as_source(data)
