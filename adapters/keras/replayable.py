"""``seq.replay``: a batch of a sequence, computed again."""

from __future__ import annotations

from adapters import replaying
from adapters.arguments import check_integer
from adapters.engine import Engine
from adapters.keras.arguments import index_of
from adapters.keras.standing import Standing
from adapters.replaying import continuation_of, key_of


class Replayable(Standing):
    """The method ``replay`` of a sequence."""

    _engine: Engine

    @property
    def _endless(self) -> bool:
        raise NotImplementedError

    def replay(
        self,
        epoch: int,
        batch: int,
        *,
        shuffled: bool = False,
        state: dict[str, int] | None = None,
    ) -> replaying.Replay:
        """Compute a batch of any epoch again: ``print`` it, or write its ``sheet(path)``.

        Args:
            epoch: Of the batch, from 0.
            batch: Its number, as in ``seq[batch]``.
            shuffled: ``batch`` counts as ``fit(shuffle=True)`` does, which permutes the batches of
                a sequence whose samples aren't shuffled.
            state: What ``load_state_dict`` was given in the middle of that epoch, where it went on
                with other shards or another ``batch_size``. Not needed in the sequence that did.

        Raises:
            IndexError: ``batch`` is not in ``range(-len(seq), len(seq))``.
            ValueError: The source has epochs of its own, and is in another one; or the batch came
                before the state, of batches or shards of another size.
        """
        check_integer("epoch", epoch, 0)
        plan, epoch = self._settled()._plan, int(epoch)
        if epoch == self.epoch:
            self._engine.enter_epoch(epoch)  # Whose hooks may make its batches.
        number = index_of(batch, plan.num_batches)
        own = self._progress.continuation
        continuation = continuation_of(own, plan.order, epoch, state, "sequence")
        permuted = shuffled and not self._endless and not plan.order.shuffle
        key = key_of(continuation, plan.order, epoch, number, plan.shuffled if permuted else None)
        return replaying.replay_batch(plan, key, self.epoch)
