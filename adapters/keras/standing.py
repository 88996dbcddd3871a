"""Where a sequence stands, for users: its epoch, and its state as two integers.

What was consumed of an epoch is told in one of two ways:

    {"epoch": e, "samples": n}   the first n samples of the global order, by all shards together
    {"epoch": e, "batch": i}     i batches of a sequence like this one

Where the order depends on how large a batch of all shards together is, the second one has that in
the place of its "batch": ``{"epoch": e, "batch of 64": i}``.

The first needs no word about batch size and shards, so that other shards may go on. It is the state
of a sequence with a shard; the second one is that of all others, and of batches that ``fit``
permutes.
"""

from __future__ import annotations

import abc

from adapters.arguments import batches_of, check_integer, position_of, samples_of, unit_of
from adapters.batch.key import WHOLE, Continuation
from adapters.batch.sourceplan import SourcePlan
from adapters.keras.asked import Asked
from adapters.keras.progress import Progress
from adapters.ranks import ShardArgument
from adapters.sources import SequenceSource


class Standing(Asked, abc.ABC):
    """What there is of an epoch and a state."""

    _plan: SourcePlan
    _progress: Progress
    _shard: ShardArgument

    @abc.abstractmethod
    def _settled(self) -> Standing:
        """Itself, with the shard that it has from now on."""

    @property
    def epoch(self) -> int:
        """The current epoch, from 0."""
        return self._progress.epoch

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the current one; a pass that is under way is not changed.

        Raises:
            ValueError: Below 0, or an epoch that a ``PyDataset`` with hooks of its own has left.
        """
        check_integer("epoch", epoch, 0)
        self._move(int(epoch), 0)

    def _move(self, epoch: int, step: int, rest: Continuation = WHOLE) -> None:
        source = self._plan.source
        if isinstance(source, SequenceSource):
            source.check_epoch(epoch)
        self._progress.move(epoch, step, rest)

    def state_dict(self) -> dict[str, int]:
        """Where the latest pass stands: two integers, ``{"epoch": e, "batch": i}``.

        ``i`` is the batch that comes next. With ``shard``, the state is ``{"epoch": e, "samples":
        n}``, the samples that all shards together have consumed in this epoch. It is the same on
        every shard, and any number of shards goes on from there, with any ``batch_size``: each
        sample that is left comes once, up to equal lengths of the shards. Batches that
        ``fit(shuffle=True)`` permutes, where the sequence itself doesn't shuffle, can only be
        counted: the state has ``"batch"`` then, and equal shards alone can go on. So it is with
        ``bucket_by`` and ``shuffle``, where shards go on whose batches make as many samples
        together, which the state says: ``{"epoch": e, "batch of 64": i}``.

        In a callback of ``fit``, that is the batch after the last one that was trained on; under a
        ``tf.distribute`` strategy, which reads ahead by itself, up to two batches more.
        """
        progress = self._settled()._progress
        epoch, step = progress.position()
        order, goes_on = self._plan.order, progress.continuation.covers(epoch, step)
        if order.elastic and progress.counts_samples and (goes_on or self._sharded):
            origin = progress.continuation.origin if goes_on else 0
            return {"epoch": epoch, "samples": order.consumed(step, origin)}
        grouped = step and self._sharded and not order.elastic
        return {"epoch": epoch, unit_of(order.consumed(1)) if grouped else "batch": step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Have the next pass start at that batch; the passes after it are whole again.

        Args:
            state: Of a sequence of the same samples, with the same ``shuffle`` and ``seed``. One
                with ``"samples"`` may be of other shards and another ``batch_size``.

        Raises:
            ValueError: Not a state of a sequence of this length, or of an epoch that a
                ``PyDataset`` with hooks of its own has left.
        """
        count = self._settled()._plan.num_batches
        order = self._plan.order
        if order.elastic and (at := samples_of(state, order.size, "sequence")) is not None:
            self._go_on(*at)
            return
        told = batches_of(state, order.consumed(1), order.size, "sequence")
        epoch, batch = told or position_of(state, lambda epoch: count, "sequence")
        if batch and self._sharded and told is None:
            self._shard.warn_of_batches(state, order.consumed(1), order.elastic)
        if batch and count is not None and batch >= count:  # What is left doesn't fill all shards.
            epoch, batch = epoch + 1, 0
        self._move(epoch, batch)

    @property
    def _sharded(self) -> bool:
        return self._shard.requested is not None or self._plan.order.shard[1] > 1

    def _go_on(self, epoch: int, samples: int) -> None:
        """Have the next pass start where so many samples of an epoch's order were consumed."""
        rest = self._plan.order.continuation(epoch, samples) if samples else WHOLE
        if rest is None:
            self._move(epoch + 1, 0)
        elif rest is WHOLE:
            self._move(epoch, 0)
        else:
            self._move(epoch, rest.step, rest)
