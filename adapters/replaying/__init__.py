"""A batch once more, for people: what is in it, where it lies, what was drawn, as pictures."""

from __future__ import annotations

from adapters.replaying.replay import Replay, replayed

__all__ = ["Replay", "replayed"]
