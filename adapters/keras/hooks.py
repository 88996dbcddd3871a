"""Calls of ``on_epoch_begin`` and ``on_epoch_end`` of ``SafeSequence`` subclasses.

Each backend of Keras calls them in a different order, and more than once per epoch. Here each is
called once per epoch, also if the epoch is replayed: before its first batch is computed and after
its last batch is delivered. A sequence with such hooks is never read beyond the end of its epoch,
because they may change the next batches.

A user's loop over ``seq[i]`` also calls them, as with stock Keras. They mark the end of an epoch
there.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from adapters.batch.sourceplan import SourcePlan
from adapters.engine import Engine, Settings
from adapters.sources import Source

NAMES = ("on_epoch_begin", "on_epoch_end")
_running = threading.local()


def own_hooks(kind: type, base: type) -> bool:
    """True if a class overrides a hook of ``base``."""
    return any(getattr(kind, name, None) is not getattr(base, name, None) for name in NAMES)


def divert(kind: type, base: type) -> None:
    """Redirect calls of a subclass's hooks to the base class, which calls the hooks when due.

    Args:
        kind: The subclass.
        base: The base class. Its hooks are not redirected.
    """
    for name, account in zip(NAMES, ("_begin_epoch", "_end_epoch")):
        own = getattr(kind, name)
        if own is not getattr(base, name) and not hasattr(own, "is_diverted"):
            setattr(kind, name, _diverted(own, account))


def _diverted(own: Callable[[Any], None], account: str) -> Callable[[Any], None]:
    @functools.wraps(own)
    def hook(self: Any) -> None:
        if is_running(self) or not self._has_begun:
            own(self)
        else:
            getattr(self, account)()

    hook.is_diverted = True  # type: ignore[attr-defined]
    return hook


def run_hook(sequence: Any, name: str) -> None:
    """Call a hook of a sequence, including the hooks that it calls by ``super()``."""
    outer = getattr(_running, "sequence", None)
    _running.sequence = sequence
    try:
        getattr(sequence, name)()
    finally:
        _running.sequence = outer


def is_running(sequence: Any) -> bool:
    """True if ``run_hook`` runs a hook of this sequence in this thread."""
    return getattr(_running, "sequence", None) is sequence


class HookedEngine(Engine):
    """Engine of a sequence whose class overrides hooks.

    Args:
        plan: Plan of the batches.
        settings: Worker settings.
        sequence: The sequence. Its ``_hook_calls`` count the calls so far, ``[begins, ends]``, and
            are copied with it.
    """

    def __init__(self, plan: SourcePlan, settings: Settings, sequence: Any) -> None:
        super().__init__(plan, settings)
        self._sequence = weakref.ref(sequence)
        self._calls_lock = threading.RLock()
        self._calling = False

    def enter_epoch(self, epoch: int) -> None:
        """Call the hooks that are due before the first batch of this epoch."""
        super().enter_epoch(epoch)
        self._call(epoch + 1, epoch)

    def leave_for(self, epoch: int) -> None:
        """Call the hooks that are due once all epochs before this one are delivered."""
        super().enter_epoch(epoch)
        self._call(epoch, epoch)

    def turn(self) -> None:
        """End an epoch and begin the next one, for a source without epochs."""
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
        """Start over in a forked process. The thread that held the lock doesn't exist there."""
        self._calls_lock = threading.RLock()
        super().forget_workers()


def turn(engine: Engine, source: Source) -> None:
    """End an epoch of Keras over an endless source, which has no epochs itself."""
    source.turn()
    if isinstance(engine, HookedEngine):
        engine.turn()
