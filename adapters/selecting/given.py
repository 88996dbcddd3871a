"""What a user gives as a source of single samples."""

from __future__ import annotations

from typing import Any

from adapters.sources import Source, as_source, refuse_parts_in_a_list

# Classes whose items are whole batches, and which are not imported for that.
_WHOLE_BATCHES = {"PyDataset", "Sequence"}
_LIBRARIES = {"keras", "tf_keras", "tensorflow"}


def source_given(data: Any, name: str) -> Source:
    """Wrap anything that ``SafeSequence`` takes, but for whole batches.

    Args:
        data: The source.
        name: What the user calls it.

    Raises:
        OSError: A path of nothing that can be read.
        RecordError: A path of something that is no record file.
        TypeError: Whole batches, no length, no random access, or a list that may mean two things.
        ValueError: Arrays of unequal lengths, or no sample at all.
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
        while data and data[-1] is None:  # (x, y, None), as Keras has it.
            data = data[:-1]
    return as_source(data)
