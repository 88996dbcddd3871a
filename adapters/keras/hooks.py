"""Calls of ``on_epoch_begin`` and ``on_epoch_end`` of ``SafeSequence`` subclasses.

Each backend of Keras calls them in a different order, and more than once per epoch. Here each is
called once per epoch, also if the epoch is replayed: before its first batch is computed and after
its last batch is delivered.

A user's loop over ``seq[i]`` also calls them, to mark the end of an epoch. So ``divert`` replaces
the hooks in the class by those of ``SafeSequence``, which move the position if due. These reach
``HookedEngine``, as does the computation of a batch. Its ``EpochHooks`` calls the original hooks as
often as due. Within these, the replacement passes calls on, for ``super()``.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from adapters.batch.sourceplan import SourcePlan
from adapters.engine import Engine, Settings
from adapters.sources import SequenceSource, Source
from adapters.sources.sequence import HOOKS, EpochHooks


def overrides_hooks(kind: type, base: type) -> bool:
    """True if a class overrides a hook of ``base``."""
    return any(getattr(kind, name, None) is not getattr(base, name, None) for name in HOOKS)


def divert(kind: type, base: type) -> None:
    """Redirect calls of a subclass's hooks to those of ``base``, which call the hooks when due."""
    for name in HOOKS:
        own, replacement = getattr(kind, name), getattr(base, name)
        if own is not replacement and not hasattr(own, "is_diverted"):
            setattr(kind, name, _diverted(own, replacement))


def _diverted(own: Callable[[Any], None], replacement: Callable[[Any], None]) -> Any:
    @functools.wraps(own)
    def hook(self: Any) -> None:
        # A constructor may call its hooks, too.
        outside = hasattr(self, "_engine") and not self._epoch_hooks.running_here
        (replacement if outside else own)(self)

    hook.is_diverted = True  # type: ignore[attr-defined]
    return hook


class HookedEngine(Engine):
    """Engine of a sequence whose class overrides hooks."""

    def __init__(self, plan: SourcePlan, settings: Settings, sequence: Any) -> None:
        super().__init__(plan, settings)
        self._sequence = weakref.ref(sequence)
        self.hooks: EpochHooks = sequence._epoch_hooks

    def enter_epoch(self, epoch: int) -> None:
        """Enter an epoch, and call the hooks that are due before its first batch."""
        super().enter_epoch(epoch)
        self.call_hooks(2 * epoch + 1)

    def leave_for(self, epoch: int) -> None:
        """Enter an epoch, and call the hooks of the earlier ones, but not its own begin hook."""
        super().enter_epoch(epoch)
        self.call_hooks(2 * epoch)

    def call_hooks(self, due: int) -> None:
        """Call the hooks until they were called at least this often."""
        sequence = self._sequence()
        if sequence is not None and self.hooks.call(sequence, due):
            self.refresh()

    def forget_workers(self) -> None:
        """Start over in a forked process. The thread that held the lock doesn't exist there."""
        self.hooks.renew_lock()
        super().forget_workers()


def next_keras_epoch(engine: Engine, source: Source) -> None:
    """End an epoch of Keras over an endless source, which has no epochs itself."""
    if isinstance(source, SequenceSource):
        source.turn()
    if isinstance(engine, HookedEngine):
        engine.call_hooks(engine.hooks.calls + 2)
