"""``SequenceSource``: whole batches by number, such as a Keras ``PyDataset``.

``PyDatasetWithoutKeras`` is the base of a user's ``PyDataset`` in workers that don't import Keras.
Importing Keras takes seconds and hundreds of megabytes in each worker. There, a class that a script
derives from ``keras.utils.PyDataset`` needs only the attributes of that class.
"""

from __future__ import annotations

import logging
import operator
import threading
import types
from typing import Any

import numpy as np

from adapters.ownership import Allocate, taken
from adapters.sources.source import Source

log = logging.getLogger("adapters")

HOOKS = ("on_epoch_begin", "on_epoch_end")


class EpochHooks:
    """Calls of the hooks of one object; each is called once per epoch, also if that is replayed."""

    def __init__(self, calls: int = 0) -> None:
        self.calls = calls
        """Number of calls so far; the object is in epoch ``calls // 2``."""
        self.renew_lock()

    def renew_lock(self) -> None:
        """Make a new lock in a forked process, where its holder doesn't exist."""
        self._lock = threading.RLock()  # Reentrant: a hook may read a batch.
        self._thread = 0

    def call(self, owner: Any, due: int) -> bool:
        """Call the owner's hooks until they were called this often; return True if any was."""
        with self._lock:
            if self._thread:  # A hook reads a batch.
                return False
            before, self._thread = self.calls, threading.get_ident()
            try:
                while self.calls < due:
                    hook = getattr(owner, HOOKS[self.calls % 2], None)
                    self.calls += 1
                    if hook is not None:
                        hook()
            finally:
                self._thread = 0
            return self.calls > before

    @property
    def running_here(self) -> bool:
        """True if this thread is in one of the hooks."""
        return self._thread == threading.get_ident()

    def __reduce__(self) -> Any:
        return EpochHooks, (self.calls,)


class SequenceSource(Source):
    """Whole batches by number.

    If ``on_epoch_begin`` or ``on_epoch_end`` of the sequence do something, its batches depend on
    the number of calls, so a pass must not read beyond its own epoch. Callers of ``batch`` on
    several threads must hold a ``Gate`` of ``users_code``. Pickled copies (one in each worker
    process) are in the epoch that the sequence is in.
    """

    makes_samples = False  # It makes batches.
    whole_batches = may_grow = True

    def __init__(self, sequence: Any, changes_between_epochs: bool) -> None:
        self._sequence = sequence
        self._hooks = EpochHooks()
        self.changes_between_epochs = changes_between_epochs
        self._batches = self._added = 0
        self._has_warned = False
        if not self.endless:
            self.take_length()

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        count = self._count()
        if count is None:
            raise TypeError(f"{type(self._sequence).__name__} has no end, and so no length")
        return count

    def take_length(self) -> int:
        """Take the present number of batches as that of an epoch, and return it."""
        self._batches, self._added, self._has_warned = len(self), 0, False
        if not self._batches:
            raise ValueError("source must hold at least one batch, got 0")
        return self._batches

    @property
    def endless(self) -> bool:
        """True if the sequence has no length; then every number is valid."""
        return self._count() is None

    def _count(self) -> int | None:
        try:
            count = self._sequence.num_batches
        except NotImplementedError:  # A PyDataset of Keras without a length.
            return None
        except AttributeError:  # A Sequence of Keras 2.
            count = len(self._sequence) if hasattr(type(self._sequence), "__len__") else None
        return None if count is None else max(0, int(count))

    def way(self, transformed: bool) -> str:
        """Human-readable description of how batches are read."""
        return "whole batches, asked for by number"

    @property
    def users_code(self) -> tuple[Any, ...]:
        """The sequence."""
        return (self._sequence,)

    def sample(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """Return a whole batch, the smallest unit."""
        return self.batch(number)

    def batch(self, number: int, allocate: Allocate = np.empty) -> Any:
        """Return a whole batch; a kept one is copied, into ``allocate``'s memory."""
        if self._added < 0:
            raise ValueError(f"source must not become shorter within a pass: {self._lengths()}")
        return taken(operator.getitem, allocate, self._sequence, number)

    def enter_epoch(self, epoch: int) -> bool:
        """Call the hooks, once per epoch, until it is in this one; return True if any was due.

        No other thread may read meanwhile. A sequence never goes back to an earlier epoch.
        """
        changed = self._hooks.call(self._sequence, 2 * epoch + 1)
        if not self._hooks.running_here:
            self._compare_length()
        return changed

    def check_length(self) -> bool:
        """Compare the length with that of an epoch, and return True if it has changed.

        A pass reads no batches that are added, and fails if some are gone.
        """
        before = self._added
        self._compare_length()
        if self._added > 0 and not self._has_warned:
            self._has_warned = True
            log.warning("batches added to source within a pass are not read: %s", self._lengths())
        return self._added != before

    def _compare_length(self) -> None:
        self._added = (self._count() or 0) - self._batches

    def _lengths(self) -> str:
        return (
            f"{type(self._sequence).__name__} had {self._batches} batches and has "
            f"{self._batches + self._added}; change its length between passes, and call fit for "
            "each length"
        )

    def check_epoch(self, epoch: int) -> None:
        """Check that this epoch can be entered."""
        now = self._hooks.calls // 2
        if self.changes_between_epochs and epoch < now:
            raise ValueError(
                f"epoch must be {now} or a later one, got {epoch}: on_epoch_begin and "
                f"on_epoch_end of {type(self._sequence).__name__} have changed what its batches "
                "are, and nothing brings it back; make a new one to start again"
            )

    @property
    def replayed_hooks(self) -> list[Any]:
        """Functions of the hooks that resuming an epoch calls; empty once an epoch has begun."""
        if self._hooks.calls or not self.changes_between_epochs:
            return []
        return [getattr(type(self._sequence), name, None) for name in HOOKS]

    def turn(self) -> None:
        """Call the hooks, if any, between two epochs of an endless sequence."""
        calls = self._hooks.calls
        if self.changes_between_epochs:
            try:
                self._hooks.call(self._sequence, calls + 2)
            finally:
                self._hooks.calls = calls  # The sequence stays in its only epoch.

    def renew_locks(self) -> None:
        """Make a new lock in a forked process."""
        self._hooks.renew_lock()


def reduce_iterator(value: Any) -> Any:
    """``__reduce__`` value for Keras's image iterators, else ``NotImplemented``.

    ``ImageDataGenerator.flow`` and the like hold a generator, which can't be pickled and isn't used
    when batches are read by number. The copy gets a new one.
    """
    if not hasattr(type(value), "_flow_index") or isinstance(value, type):
        return NotImplemented
    state = dict(getattr(value, "__dict__", {}))
    if not isinstance(state.pop("index_generator", None), types.GeneratorType):
        return NotImplemented
    return type(value).__new__, (type(value),), state, None, None, _renew_iterator


def _renew_iterator(value: Any, state: dict[str, Any]) -> None:
    value.__dict__.update(state, index_generator=value._flow_index())


def _setting(name: str, kind: type) -> Any:
    """Attribute that users read and set, with its value where Keras has it."""
    own = f"_{name}"
    return property(
        lambda self: kind(getattr(self, own)), lambda self, value: setattr(self, own, value)
    )


class PyDatasetWithoutKeras:
    """Attributes and hooks of ``keras.utils.PyDataset``, with the same instance state."""

    _workers, _use_multiprocessing, _max_queue_size = 1, False, 10  # If __init__ isn't called.

    def __init__(
        self, workers: int = 1, use_multiprocessing: bool = False, max_queue_size: int = 10
    ) -> None:
        self._workers = workers
        self._use_multiprocessing = use_multiprocessing
        self._max_queue_size = max_queue_size

    workers = _setting("workers", int)
    use_multiprocessing = _setting("use_multiprocessing", bool)
    max_queue_size = _setting("max_queue_size", int)

    @property
    def num_batches(self) -> int | None:
        """Length of the data set, or None."""
        return len(self) if hasattr(self, "__len__") else None

    def __getitem__(self, index: int) -> Any:
        """Raise an error: the user's class defines it."""
        raise NotImplementedError

    def on_epoch_begin(self) -> None:
        """Do nothing: epochs start in the trainer's process."""

    def on_epoch_end(self) -> None:
        """Do nothing: epochs end in the trainer's process."""


def base_without_keras() -> type:
    """Return the base class; in a module that a worker imports without Keras."""
    return PyDatasetWithoutKeras
