"""What ``SafeSequence`` reads beyond what every loader of this package does: Keras's sequences."""

from __future__ import annotations

from typing import Any

import keras

from adapters.alignment import aligned_empty
from adapters.batch.key import BatchKey
from adapters.batch.sourceplan import SourcePlan
from adapters.keras.hooks import NAMES, own_hooks, run_hook
from adapters.sources import SequenceSource, Source, as_source, refuse_parts_in_a_list


class Inner:
    """A ``SafeSequence`` that is the source of another one, without workers of its own.

    Args:
        plan: What is computed.
        epoch: The one that it is at.
        hooked: The sequence itself, if its class has hooks of its own.
    """

    thread_safe = True

    def __init__(self, plan: SourcePlan, epoch: int, hooked: Any) -> None:
        self._plan = plan
        self._epoch = epoch
        self._hooked = hooked

    @property
    def num_batches(self) -> int | None:
        """Batches in an epoch; None for one without an end."""
        return self._plan.num_batches

    def __getitem__(self, index: int) -> Any:
        return self._plan.batch(BatchKey(self._epoch, index), aligned_empty).batch

    def on_epoch_begin(self) -> None:
        """Call the hook of the sequence's class."""
        if self._hooked is not None:
            run_hook(self._hooked, "on_epoch_begin")

    def on_epoch_end(self) -> None:
        """Go on to the next epoch."""
        self._epoch += 1
        if self._hooked is not None:
            run_hook(self._hooked, "on_epoch_end")

    def __getstate__(self) -> dict[str, Any]:
        # Hooks are called where the consumer is, not in its worker processes.
        return {**self.__dict__, "_hooked": None}


def without_none(source: Any) -> Any:
    """Drop None at the end of ``(x, y, None)``, which Keras takes for ``(x, y)``."""
    if isinstance(source, tuple) and not hasattr(source, "_fields"):
        while source and source[-1] is None:
            source = source[:-1]
    return source


def source_of(source: Any) -> Source:
    """Wrap what a user gives to ``SafeSequence``.

    Args:
        source: See there; not a ``SafeSequence``.

    Raises:
        OSError: A path of nothing that can be read.
        RecordError: A path of something that is no record file.
        TypeError: No length, no random access, or a list that may mean two things.
        ValueError: Arrays of unequal lengths, or no sample at all.
    """
    if isinstance(source, keras.utils.PyDataset):
        own = own_hooks(type(source), keras.utils.PyDataset) or any(
            name in vars(source) for name in NAMES
        )
        return SequenceSource(source, own_epochs=own)
    bases = [f"{base.__module__}.{base.__name__}" for base in type(source).__mro__]
    if any(
        base.startswith(("keras.", "tf_keras.")) and base.endswith(".Sequence") for base in bases
    ):
        return SequenceSource(source, own_epochs=True)
    refuse_parts_in_a_list(source)
    return as_source(source)
