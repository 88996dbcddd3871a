"""``ragged``: concatenates samples of unequal lengths, without padding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.alignment import aligned_empty
from adapters.batch.collate import Probe, filler
from adapters.collating.members import ByMember, common_dtype, same_rest


class Ragged(ByMember):
    """Collates to ``(values, row_splits)``; made by ``ragged``, which documents the arguments."""

    def __repr__(self) -> str:
        return f"ragged({self._value!r}, {self._multiple})"

    def member(self, arrays: list[NDArray[Any]], value: Any, where: str) -> Any:
        """Concatenate the arrays of one member."""
        same_rest(arrays, (0,), where)
        if self._probe is not None:
            arrays = _probed(arrays, self._probe)
        dtype = common_dtype(arrays)
        row_splits = np.zeros(len(arrays) + 1, np.int64)
        np.cumsum([len(array) for array in arrays], out=row_splits[1:])
        total = int(row_splits[-1])
        values = aligned_empty((self.rounded(total), *arrays[0].shape[1:]), dtype)
        if not dtype.hasobject:
            np.concatenate(arrays, out=values[:total])
        elif total:
            values[:total] = np.concatenate(arrays)
        values[total:] = filler(value, dtype, where)
        return values, row_splits


def _probed(arrays: list[NDArray[Any]], probe: Probe) -> list[NDArray[Any]]:
    """Make the longest array longer by one, if the probe asks for it."""
    lengths = [len(array) for array in arrays]
    place = int(np.argmax(lengths))
    if not (probe.asks(lengths[place], min(lengths) < max(lengths)) and lengths[place]):
        return arrays
    longer = np.concatenate([arrays[place], arrays[place][-1:]])
    return [*arrays[:place], longer, *arrays[place + 1 :]]


def ragged(value: Any = 0, to_multiple_of: int = 1) -> Ragged:
    """Collate function that concatenates the samples of a batch, without padding.

    Each member whose lengths may differ becomes ``(values, row_splits)``: sample ``i`` of the batch
    is ``values[row_splits[i]:row_splits[i + 1]]``. ``tf.RaggedTensor.from_row_splits``,
    ``torch.nested.nested_tensor_from_jagged`` and sparse kernels take this layout.

    Args:
        value: Fills ``values`` up to ``to_multiple_of``; belongs to no sample. A structure like the
            samples' has one for each member, None for a member that is only stacked.
        to_multiple_of: ``values`` of a batch are filled up to a multiple of this.

    Returns:
        A function for ``collate=`` of ``SafeSequence`` and ``batchify_fn=`` of ``gluon_loader``.
            Called with a list of samples, it returns the batch, in new memory; ``row_splits`` is
            int64 ``(batch + 1,)``. Single numbers and strings are stacked.

    Raises:
        TypeError: An argument of the wrong type.
        ValueError: Out of range.

    Example:
        >>> from adapters import ragged
        >>> ragged()([[5, 6], [7, 8, 9]])
        (array([5, 6, 7, 8, 9]), array([0, 2, 5]))
    """
    return Ragged(value, to_multiple_of)
