"""A batch once more, for people: what is in it, where it lies, what was drawn, as pictures."""

from __future__ import annotations

from adapters.replaying.replay import Replay, replayed
from adapters.replaying.rest import continued, key_of

__all__ = ["Replay", "continued", "key_of", "replayed"]
