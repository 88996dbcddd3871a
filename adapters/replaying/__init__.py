"""``replay``: a training batch computed again, with its samples, their files and crops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.lazily import bound
from adapters.replaying.keys import key_of, resumed_epoch_of

if TYPE_CHECKING:
    from adapters.replaying.replay import Replay, replay_batch
else:
    __getattr__ = bound(
        __name__, dict.fromkeys(("Replay", "replay_batch"), "adapters.replaying.replay")
    )

__all__ = ["Replay", "key_of", "replay_batch", "resumed_epoch_of"]
