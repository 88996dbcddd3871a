"""A batch once more, for people: what is in it, where it lies, what was drawn, as pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.lazily import bound
from adapters.replaying.rest import continued, key_of

if TYPE_CHECKING:
    from adapters.replaying.replay import Replay, replayed
else:
    __getattr__ = bound(
        __name__, dict.fromkeys(("Replay", "replayed"), "adapters.replaying.replay")
    )

__all__ = ["Replay", "continued", "key_of", "replayed"]
