"""``on_epoch_begin`` and ``on_epoch_end`` of a subclass of ``SafeSequence``.

Keras calls them in another order on every backend, and more often than there are epochs. Here each
is called once per epoch, in turn, before the epoch's first batch is computed and after its last one
has been delivered, however often an epoch is replayed. A sequence with such hooks is never read
beyond the end of its epoch, as they may change what the next batches are.

A loop of the program's own over ``seq[i]`` calls them, too, as stock Keras has it: then they say
where an epoch ends.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from adapters.batch.sourceplan import SourcePlan
from adapters.engine import Engine, Settings
from adapters.keras.internals import called_by_keras
from adapters.sources import Source

NAMES = ("on_epoch_begin", "on_epoch_end")
_running = threading.local()


def own_hooks(kind: type, base: type) -> bool:
    """Whether a class has other hooks than ``base``."""
    return any(getattr(kind, name, None) is not getattr(base, name, None) for name in NAMES)


def divert(kind: type, base: type) -> None:
    """Have whoever calls a subclass's hook reach the base's account, which has it called in time.

    Args:
        kind: The subclass.
        base: Whose hooks need no diversion.
    """
    for name, account in zip(NAMES, ("_begin_epoch", "_end_epoch")):
        own = getattr(kind, name)
        if own is not getattr(base, name) and not hasattr(own, "is_diverted"):
            setattr(kind, name, _diverted(own, account))


def _diverted(own: Callable[[Any], None], account: str) -> Callable[[Any], None]:
    @functools.wraps(own)
    def hook(self: Any) -> None:
        by_keras = called_by_keras()
        if not by_keras and (is_running(self) or not self._has_begun):
            own(self)
        else:
            getattr(self, account)(by_keras)

    hook.is_diverted = True  # type: ignore[attr-defined]
    return hook


def run_hook(sequence: Any, name: str) -> None:
    """Call a sequence's own hook, and those that it calls by ``super()``."""
    outer = getattr(_running, "sequence", None)
    _running.sequence = sequence
    try:
        getattr(sequence, name)()
    finally:
        _running.sequence = outer


def is_running(sequence: Any) -> bool:
    """Whether a hook of this sequence runs in this thread, by ``run_hook``."""
    return getattr(_running, "sequence", None) is sequence


class HookedEngine(Engine):
    """The engine of a sequence whose class has hooks of its own.

    Args:
        plan: What is computed.
        settings: By whom.
        sequence: Whose hooks are called. Its ``_hook_calls`` are the calls so far, ``[begins,
            ends]``, which a copy of it takes along.
    """

    def __init__(self, plan: SourcePlan, settings: Settings, sequence: Any) -> None:
        super().__init__(plan, settings)
        self._sequence = weakref.ref(sequence)
        self._calls_lock = threading.RLock()
        self._calling = False

    def enter_epoch(self, epoch: int) -> None:
        """Call what is due before the first batch of this epoch."""
        super().enter_epoch(epoch)
        self._call(epoch + 1, epoch)

    def leave_for(self, epoch: int) -> None:
        """The epochs before this one have been delivered; it has not begun."""
        super().enter_epoch(epoch)
        self._call(epoch, epoch)

    def turn(self) -> None:
        """End an epoch and begin the next one, where the source knows of none."""
        sequence = self._sequence()
        if sequence is not None:
            begins, ends = sequence._hook_calls
            self._call(begins + 1, ends + 1)

    def _call(self, begins: int, ends: int) -> None:
        sequence, called = self._sequence(), False
        with self._calls_lock:
            if sequence is None or self._calling:  # A hook may look at a batch.
                return
            self._calling = True
            try:
                calls = sequence._hook_calls
                while calls[0] < begins or calls[1] < ends:
                    number = int(calls[0] > calls[1])
                    calls[number] += 1
                    run_hook(sequence, NAMES[number])
                    called = True
            finally:
                self._calling = False
        if called:
            self.refresh()

    def forget_workers(self) -> None:
        """Start over in a forked process, where whoever held the lock is not."""
        self._calls_lock = threading.RLock()
        super().forget_workers()


def turn(engine: Engine, source: Source) -> None:
    """An epoch of Keras's ends, and the source, which has no end, knows of none."""
    source.turn()
    if isinstance(engine, HookedEngine):
        engine.turn()
