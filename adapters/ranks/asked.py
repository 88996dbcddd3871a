"""``shard`` as it was asked for, and what it has turned out to be."""

from __future__ import annotations

import logging
from typing import Any

from adapters.ranks.place import auto_shard, notice_same_shard, shard_of_kvstore

log = logging.getLogger("adapters")

_COUNTS_SAMPLES = (
    ". With shard=..., state_dict() counts samples, which any number of shards can go on from"
)


class AskedShard:
    """The argument ``shard`` of a loader.

    ``"auto"`` is settled when the loader is made, if somebody says then what this process is; or
    else when the loader is used for the first time, as ``torch.distributed`` and others may be
    started in between. What is settled stays, in copies and pickles too.

    Args:
        shard: None, ``(index, count)``, ``"auto"``, or an MXNet kvstore; checked already.

    Raises:
        ValueError: Nobody can tell for ``"auto"``, as those who speak contradict each other.
    """

    def __init__(self, shard: Any) -> None:
        self.auto = isinstance(shard, str)
        self.value: tuple[int, int] | None = None
        if self.auto:
            self.value = auto_shard(last=False)
        elif hasattr(shard, "num_workers"):
            self.value = shard_of_kvstore(shard)
        elif shard is not None:
            self.value = int(shard[0]), int(shard[1])

    @property
    def open(self) -> bool:
        """Whether it is to be found out yet."""
        return self.auto and self.value is None

    @property
    def asked(self) -> tuple[int, int] | None:
        """``(index, count)`` as far as it is known; None where no shard was asked for."""
        return self.part if self.auto else self.value

    @property
    def part(self) -> tuple[int, int]:
        """``(index, count)``, of one where no shard was asked for."""
        return self.value or (0, 1)

    def settle(self) -> bool:
        """Find it out, now at the latest.

        Returns:
            Whether it is another part than before.
        """
        if not self.open:
            return False
        self.value = auto_shard(last=True)
        return self.part != (0, 1)

    def notice(self) -> None:
        """A pass begins: warn, once, where another process seems to load the same."""
        notice_same_shard(self.value, self.auto)

    def warn_of_batches(self, state: Any, samples: int, elastic: bool) -> None:
        """Say how a state is understood that counts batches, where there are shards.

        Args:
            state: Which.
            samples: In a batch of all shards together.
            elastic: Whether states are such here that any number of shards can go on from them.
        """
        log.warning(
            "load_state_dict: %s counts batches, taken to be of %d samples over all shards, as "
            "here: right only if the run that it comes from had the same%s",
            state,
            samples,
            _COUNTS_SAMPLES if elastic else "",
        )
