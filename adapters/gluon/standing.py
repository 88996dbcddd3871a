"""Where a loader stands, for users: its epoch, and its state as two integers.

What was given of an epoch is told in one of two ways:

    {"epoch": e, "samples": n}   the first n samples of the global order, by all shards together
    {"epoch": e, "batch": i}     i batches of a loader like this one

The first needs no word about batch size and shards, so that other shards may go on. It is the state
of a loader with a shard; the second one is that of all others, and of what rolls over.
"""

from __future__ import annotations

import abc
from typing import Any

from adapters.arguments import batches_of, check_integer, position_of, samples_of, unit_of
from adapters.batch.key import WHOLE, Continuation
from adapters.gluon.progress import Progress
from adapters.gluon.samplers import (
    OrderBatchSampler,
    length_of,
    obstacle_to_replay,
    rolls_over,
    tell_epoch,
)
from adapters.ranks import AskedShard
from adapters.replaying import continued


class Standing(abc.ABC):
    """What there is of an epoch and a state."""

    _progress: Progress
    _continuation: Continuation
    _batch_sampler: Any
    _shard: AskedShard
    _seeded: bool
    _random: bool

    @abc.abstractmethod
    def _settled(self) -> Standing:
        """Itself, with the shard that it has from now on."""

    @abc.abstractmethod
    def clean(self) -> None:
        """Drop what is begun of the next pass."""

    @property
    def epoch(self) -> int:
        """The number of the latest pass, from 0; of the next one when that has ended."""
        return self._progress.position[0]

    def set_epoch(self, epoch: int) -> None:
        """Have the next pass be that of ``epoch``; a pass that is under way is not changed."""
        check_integer("epoch", epoch, 0)
        self._move_to(int(epoch), 0)

    def state_dict(self) -> dict[str, int]:
        """Where the latest pass stands: two integers, ``{"epoch": e, "batch": i}``.

        ``i`` is the batch that comes next. With ``shard``, the state is ``{"epoch": e, "samples":
        n}``, the samples that all shards together have consumed in this pass. It is the same on
        every shard, and any number of shards goes on from there, with any ``batch_size``: each
        sample that is left comes once, up to equal lengths of the shards. With
        ``last_batch="rollover"`` it has ``"batch"`` all the same, and equal shards alone can go on.
        With ``bucket_by`` and ``shuffle``, shards go on whose batches make as many samples
        together, which the state says: ``{"epoch": e, "batch of 64": i}``.

        Raises:
            ValueError: Nobody can go on there, as something is random and there is no ``seed``, or
                as it depends on the passes before.
        """
        epoch, batch = self._settled()._progress.position
        self._check_replay("state_dict", epoch, batch)
        goes_on = self._continuation.covers(epoch, batch)
        if self._counts_samples and (goes_on or self._shard.asked is not None):
            origin = self._continuation.origin if goes_on else 0
            return {"epoch": epoch, "samples": self._batch_sampler.order.consumed(batch, origin)}
        sampler = self._batch_sampler
        grouped = isinstance(sampler, OrderBatchSampler) and not sampler.order.elastic
        if grouped and batch and self._shard.asked is not None:
            return {"epoch": epoch, unit_of(sampler.order.consumed(1)): batch}
        return {"epoch": epoch, "batch": batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Have the next pass start at that batch; the passes after it are whole again.

        Args:
            state: Of a loader of the same samples, with the same ``shuffle`` and ``seed``. One with
                ``"samples"`` may be of other shards and another ``batch_size``.

        Raises:
            ValueError: Not a state of a loader of this length; or nobody can go on there, see
                ``state_dict``.
        """
        sampler = self._settled()._batch_sampler
        rest = WHOLE
        if self._counts_samples and (at := samples_of(state, sampler.order.size, "loader")):
            epoch, samples = at
            continued = sampler.order.continuation(epoch, samples) if samples else WHOLE
            epoch, rest = (epoch + 1, WHOLE) if continued is None else (epoch, continued)
            batch = rest.step
        else:
            told = None
            if isinstance(sampler, OrderBatchSampler):
                order = sampler.order
                told = batches_of(state, order.consumed(1), order.size, "loader")
            epoch, batch = told or position_of(
                state, lambda epoch: length_of(sampler, epoch), "loader"
            )
            if batch and self._shard.asked is not None and told is None:
                self._shard.warn_of_batches(state, sampler.order.consumed(1), self._counts_samples)
            if told and batch and batch >= sampler.count(epoch):
                epoch, batch = epoch + 1, 0  # What is left doesn't fill all shards.
        self._check_replay("load_state_dict", epoch, batch)
        self._move_to(epoch, batch, rest)

    @property
    def _counts_samples(self) -> bool:
        """Whether what a pass has given is known to be the beginning of a global order."""
        sampler = self._batch_sampler
        return isinstance(sampler, OrderBatchSampler) and sampler.order.elastic

    def _rest(self, epoch: int, state: Any) -> Continuation:
        """How a pass went on that a batch of shall be replayed."""
        sampler = self._batch_sampler
        if isinstance(sampler, OrderBatchSampler):
            return continued(self._continuation, sampler.order, epoch, state, "loader")
        if state is not None:
            position_of(state, lambda epoch: length_of(sampler, epoch), "loader")
        return WHOLE

    def _move_to(self, epoch: int, batch: int, continuation: Continuation = WHOLE) -> None:
        self.clean()
        self._continuation = continuation
        self._progress.move(epoch, batch)
        tell_epoch(self._batch_sampler, epoch)

    @property
    def _obstacle(self) -> str | None:
        """Why nobody can compute a batch again; None where anybody can."""
        obstacle = obstacle_to_replay(self._batch_sampler, self._seeded)
        if self._random and not self._seeded and obstacle is None:
            return "the seed of what transforms draw is drawn from numpy.random: give seed=..."
        return obstacle

    def _check_replay(self, method: str, epoch: int, batch: int) -> None:
        obstacle = self._obstacle
        begins = not batch and not (epoch and rolls_over(self._batch_sampler))
        if obstacle is not None and not begins:
            raise ValueError(
                f"{method}: a pass can't be continued at batch {batch} of epoch {epoch}, as "
                f"{obstacle}"
            )
