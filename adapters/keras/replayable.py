"""``seq.replay``: a batch of a sequence once more, for people."""

from __future__ import annotations

from adapters.batch.sourceplan import SourcePlan
from adapters.keras.arguments import index_of
from adapters.replaying import Replay, replayed


class Replayable:
    """What a sequence has for it."""

    _plan: SourcePlan

    @property
    def _endless(self) -> bool:
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        """The current epoch."""
        raise NotImplementedError

    def replay(self, epoch: int, batch: int, *, shuffled: bool = False) -> Replay:
        """That very batch once more, without a log: ``print`` it, or write its ``sheet(path)``.

        Args:
            epoch: Of the batch, from 0.
            batch: Its number, as in ``seq[batch]``.
            shuffled: ``batch`` counts as ``fit(shuffle=True)`` does, which permutes the batches of
                a sequence whose samples aren't shuffled.

        Raises:
            IndexError: ``batch`` is not in ``range(-len(seq), len(seq))``.
            ValueError: The source has epochs of its own, and is in another one.
        """
        number = index_of(batch, len(self._plan), self._endless)
        return replayed(self._plan, epoch, number, self.epoch, shuffled and not self._endless)
