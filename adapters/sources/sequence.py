"""A sequence of whole batches, such as a Keras ``PyDataset``."""

from __future__ import annotations

import functools
import logging
import operator
import threading
import types
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.ownership import Allocate, taken
from adapters.sources.source import Source

log = logging.getLogger("adapters")


class SequenceSource(Source):
    """Batches by number.

    Args:
        sequence: An object with ``__len__`` or ``num_batches``, and ``__getitem__`` that returns a
            whole batch.
        own_epochs: Whether ``on_epoch_begin`` or ``on_epoch_end`` of the sequence do something:
            its batches then depend on how often they have been called, so that a pass must not
            read beyond its own epoch.

    Whoever calls ``batch`` from several threads holds a ``Gate`` of ``own_code`` meanwhile. Pickled
    copies (one in every worker process) are in the epoch that the sequence is in.
    """

    makes_samples = False  # They are made by the batch.
    whole_batches = True

    def __init__(self, sequence: Any, own_epochs: bool) -> None:
        self._sequence = sequence
        self.renew_locks()
        self._epoch: int | None = None
        self._own_epochs = own_epochs
        self._calling = False
        count = self._count()
        self._batches, self._added = count or 0, 0
        if count == 0:
            raise ValueError("source must hold at least one batch, got 0")

    def __len__(self) -> int:
        """Batches in an epoch.

        Raises:
            TypeError: The sequence has no end.
        """
        count = self._count()
        if count is None:
            raise TypeError(f"{type(self._sequence).__name__} has no end, and so no length")
        return count

    @property
    def endless(self) -> bool:
        """Whether the sequence has no number of batches: any number is the number of one."""
        return self._count() is None

    def _count(self) -> int | None:
        try:
            count = getattr(self._sequence, "num_batches", None)
        except NotImplementedError:  # What Keras's PyDataset says where it has no length either.
            return None
        if count is None and hasattr(type(self._sequence), "__len__"):
            count = len(self._sequence)
        return None if count is None else max(0, int(count))

    @property
    def own_epochs(self) -> bool:
        """Whether hooks of the sequence's own change what comes after them."""
        return self._own_epochs

    def way(self, transformed: bool) -> str:
        """How batches come from it, for people."""
        return "whole batches, asked for by number"

    @property
    def own_code(self) -> tuple[Any, ...]:
        """The sequence."""
        return (self._sequence,)

    def sample(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """A whole batch is the least that there is."""
        return self.batch(number)

    def fetch(self, numbers: NDArray[np.int64]) -> None:
        """Have the sequence make the batch of the first number, and forget it."""
        self.batch(int(numbers[0]))

    def batch(self, number: int, allocate: Allocate = np.empty) -> Any:
        """The whole batch of this number, in memory that the sequence can't write to.

        Args:
            number: Of the batch.
            allocate: Gives the memory for what the sequence keeps; what it hands over isn't copied.

        Raises:
            ValueError: Its hooks have made the sequence shorter than it was.
        """
        if self._added < 0:
            raise ValueError(f"source must not become shorter: {self._lengths()}")
        ask = functools.partial(operator.getitem, self._sequence, number)
        return taken(ask, allocate)[0]

    def enter_epoch(self, epoch: int) -> bool:
        """Call the sequence's own hooks, once per epoch, until it is in this one.

        Nobody else may read meanwhile. An epoch that is behind stays there.

        Returns:
            Whether an epoch has ended.
        """
        with self._lock:
            if self._calling:  # A hook looks at a batch.
                return False
            self._calling = True
            try:
                if self._epoch is None:
                    self._epoch = 0
                    self._call("on_epoch_begin")
                changed = self._epoch < epoch
                while self._epoch < epoch:
                    self._call("on_epoch_end")
                    self._epoch += 1
                    self._call("on_epoch_begin")
                self._look_at_length()
                return changed
            finally:
                self._calling = False

    def _look_at_length(self) -> None:
        """Find out whether hooks have changed it, which the order of the batches doesn't follow."""
        before, self._added = self._added, (self._count() or 0) - self._batches
        if self._added > 0 >= before:
            log.warning("batches that are added to source are not read: %s", self._lengths())

    def _lengths(self) -> str:
        return (
            f"{type(self._sequence).__name__} had {self._batches} batches and has "
            f"{self._batches + self._added}; make a new SafeSequence of it when its length has "
            "changed"
        )

    def check_epoch(self, epoch: int) -> None:
        """See that this epoch can be entered.

        Raises:
            ValueError: The sequence's own hooks have led beyond it.
        """
        if self.own_epochs and self._epoch is not None and epoch < self._epoch:
            raise ValueError(
                f"epoch must be {self._epoch} or a later one, got {epoch}: on_epoch_begin and "
                f"on_epoch_end of {type(self._sequence).__name__} have changed what its batches "
                "are, and nothing brings it back; make a new one to begin anew"
            )

    def turn(self) -> None:
        """Call the hooks between two epochs of a sequence that has no end, if it has any."""
        if not self.own_epochs:
            return
        with self._lock:
            self._call("on_epoch_end")
            self._call("on_epoch_begin")

    def _call(self, hook: str) -> None:
        if hasattr(self._sequence, hook):
            getattr(self._sequence, hook)()

    def renew_locks(self) -> None:
        """In a forked process, where whoever held the lock is not."""
        self._lock = threading.RLock()  # A hook of the sequence's may look at a batch of it.

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_calling": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.renew_locks()


def reduce_iterator(value: Any) -> Any:
    """What ``__reduce__`` would return for Keras's iterators over images, else ``NotImplemented``.

    ``ImageDataGenerator.flow`` and its like hold a generator of their own, which can't be sent, and
    isn't used where batches are asked for by number: the copy has a new one.
    """
    if not hasattr(type(value), "_flow_index") or isinstance(value, type):
        return NotImplemented
    state = dict(getattr(value, "__dict__", {}))
    if not isinstance(state.pop("index_generator", None), types.GeneratorType):
        return NotImplemented
    return type(value).__new__, (type(value),), state, None, None, _renew_iterator


def _renew_iterator(value: Any, state: dict[str, Any]) -> None:
    value.__dict__.update(state, index_generator=value._flow_index())
