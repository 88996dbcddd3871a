"""How long a sequence has workers: from its first use, or its copy's, to ``close`` or its end."""

from __future__ import annotations

import abc
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from adapters.batch.key import Continuation
from adapters.engine import Engine
from adapters.keras.progress import Progress

# What a sequence has once it has begun; a copy has its own.
_BEGUN = frozenset({"_engine", "_progress", "_served"})
_beginning = threading.RLock()

_Self = TypeVar("_Self", bound="Lasting")


class Lasting(abc.ABC):
    """What a sequence has for it.

    A copy begins when it is used. Until then its plan may be incomplete: that of a sequence whose
    ``transform`` is a method of whoever has the sequence leads to the sequence itself, and a copy
    of one is made within that of the other.
    """

    _engine: Engine
    _progress: Progress
    _served: set[int] | None

    @abc.abstractmethod
    def _begin(self, epoch: int, step: int, continuation: Continuation) -> None:
        """Stand at this batch, with workers of its own."""

    @abc.abstractmethod
    def _settled(self) -> Lasting:
        """Itself, with the shard that it has from now on."""

    @property
    def _has_begun(self) -> bool:
        """Whether it has been constructed."""
        return "_engine" in self.__dict__ or "_position" in self.__dict__

    def close(self) -> None:
        """End the workers and free what they shared; batches that are held stay valid."""
        self._engine.close()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():  # Workers have ended with the main thread; modules may be gone.
            return
        # No weakref.finalize, which would keep the plan, and with it whoever's methods are in it.
        if (engine := self.__dict__.get("_engine")) is not None:
            engine.close()

    def __getstate__(self) -> dict[str, Any]:
        progress = self._settled()._progress
        state = {name: value for name, value in self.__dict__.items() if name not in _BEGUN}
        return {**state, "_position": (*progress.start, progress.continuation)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __getattr__(self, name: str) -> Any:
        if name in _BEGUN:
            with _beginning:
                if (position := self.__dict__.pop("_position", None)) is not None:
                    self._begin(*position)
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
