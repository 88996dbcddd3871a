"""Sources of ``SafeSequence``, and ``SafeSequence`` as Keras itself reads it."""

from __future__ import annotations

from typing import Any

import keras

from adapters.keras.hooks import NAMES, overrides_hooks
from adapters.sources import SequenceSource, Source, as_source, refuse_parts_in_a_list


class StockView(keras.utils.PyDataset):  # type: ignore[misc]
    """``SafeSequence`` for Keras's own adapter: the same batches, without workers.

    The epoch advances when Keras has read every batch of one.
    """

    def __init__(self, sequence: Any) -> None:
        super().__init__()
        self._sequence = sequence
        self._served: set[int] | None = None

    @property
    def num_batches(self) -> int | None:
        """Number of batches in an epoch; None if it is endless."""
        return self._sequence.num_batches  # type: ignore[no-any-return]

    def __getitem__(self, index: int) -> Any:
        batch = self._sequence[index]
        if self._served is not None:
            self._served.add(index)
        return batch

    def on_epoch_begin(self) -> None:
        """Start counting: Keras has read batches before, to learn their shapes."""
        self._served = set()

    def on_epoch_end(self) -> None:
        """Advance the epoch of the sequence, unless batches of this one are left."""
        if self._served is not None and len(self._served) == self.num_batches:
            self._sequence._progress.advance()
        self._served = None


def source_of(source: Any) -> Source:
    """Wrap the ``source`` argument of ``SafeSequence``."""
    if isinstance(source, tuple) and not hasattr(source, "_fields"):
        while source and source[-1] is None:  # Keras treats (x, y, None) as (x, y).
            source = source[:-1]
    if isinstance(source, tuple) and len(source) > 3:
        raise ValueError(
            "a tuple as source must be (x,), (x, y) or (x, y, sample_weight), got "
            f"{len(source)} members; put several inputs into a tuple or dict of their own"
        )
    if isinstance(source, keras.utils.PyDataset):
        own = overrides_hooks(type(source), keras.utils.PyDataset) or any(
            name in vars(source) for name in NAMES
        )
        return SequenceSource(source, changes_between_epochs=own)
    bases = [f"{base.__module__}.{base.__name__}" for base in type(source).__mro__]
    if any(
        base.startswith(("keras.", "tf_keras.")) and base.endswith(".Sequence") for base in bases
    ):
        return SequenceSource(source, changes_between_epochs=True)
    refuse_parts_in_a_list(source)
    return as_source(source)
