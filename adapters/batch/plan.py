"""What the engine asks of whatever makes batches. It knows nothing else about them.

A plan is a pure function: what it makes for (epoch, batch index) depends on nothing else, so any
thread or process may compute any batch, any number of times. It asks ``allocate(shape, dtype)`` for
the memory of the batch, which is how a worker process has the samples written straight into the
slot that it shares with the trainer.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.batch.key import BatchKey
from adapters.ownership import Allocate as Allocate


class LayoutChanged(Exception):
    """A sample doesn't fit the layout that was foretold for its batch."""


class Layout(NamedTuple):
    """What the samples of a batch have in common.

    Args:
        skeleton: The sample's structure with leaf numbers in the leaves' places.
        leaves: ``(shape, dtype)`` of each leaf of one sample.
    """

    skeleton: Any
    leaves: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]

    @property
    def fixed_size(self) -> bool:
        """Whether every leaf has bytes of its own, so that it can lie in shared memory."""
        return bool(self.leaves) and not any(dtype.hasobject for _, dtype in self.leaves)

    def allocate(self, count: int, allocate: Allocate) -> list[NDArray[Any]]:
        """Memory for a batch of ``count`` samples, an array per leaf."""
        return [allocate((count, *shape), dtype) for shape, dtype in self.leaves]


class Assembled(NamedTuple):
    """A batch and what is known about its making."""

    batch: Any
    """The batch: a structure of arrays, first axis the samples."""
    layout: Layout | None
    """How the collated samples lie in memory, before ``finish``; None where a batch can't be filled
    in parts."""
    skipped: int
    """Samples that others have taken the place of."""


class Plan(abc.ABC):
    """Makes the batches of one loader."""

    @property
    @abc.abstractmethod
    def num_batches(self) -> int | None:
        """Batches in an epoch; None if it has no end, or nobody knows."""

    @property
    @abc.abstractmethod
    def batch_size(self) -> int:
        """Samples in most batches."""

    @abc.abstractmethod
    def batch(self, key: BatchKey, allocate: Allocate) -> Assembled:
        """Compute a batch.

        Raises:
            Exception: Whatever the user's code raises, with notes that say where.
        """

    @abc.abstractmethod
    def rows(self, key: BatchKey) -> int:
        """Samples in a batch."""

    def shuffled(self, epoch: int, step: int) -> int:
        """Number of the batch that comes at ``step`` where batches are permuted as wholes."""
        return step

    # --- batches in parts, of plans that give a layout ---

    def part(self, key: BatchKey, start: int, rows: Sequence[NDArray[Any]], layout: Layout) -> int:
        """Compute rows ``start`` and on of a batch whose layout is known, into ``rows``.

        Args:
            key: Of the batch.
            start: First row of the part.
            rows: One array per leaf, ``(rows in the part, ...)``.
            layout: Of the samples.

        Returns:
            How many samples others have taken the place of.

        Raises:
            LayoutChanged: A sample doesn't fit; compute the batch whole.
        """
        raise LayoutChanged

    @property
    def finishes(self) -> bool:
        """Whether a batch that was computed in parts goes through ``finish``."""
        return False

    def finish(self, key: BatchKey, batch: Any) -> Any:
        """What becomes of a batch that was computed in parts, in memory of its own.

        Raises:
            LayoutChanged: Compute it whole.
        """
        return batch

    def expect(self, key: BatchKey, elsewhere: bool) -> None:
        """A batch is going to be computed: begin to fetch what it is made of, and don't wait.

        Args:
            key: Of the batch.
            elsewhere: It is computed in another process.
        """

    def longer(self, epoch: int) -> list[Any]:
        """A batch of longer samples than the first one's, where that can be; see ``SourcePlan``."""
        return []

    def wait_for(self, assembled: Assembled) -> None:
        """Wait until the batch is there, where a framework computes on by itself."""

    # --- what the choice of workers depends on ---

    @property
    def threads(self) -> bool:
        """Whether threads may compute several batches at once, and get the same ones."""
        return True

    @property
    def serial(self) -> bool:
        """Whether one thread at a time makes samples, as the user's code isn't thread-safe."""
        return False

    @property
    def not_thread_safe(self) -> tuple[str, ...]:
        """The arguments whose code one thread at a time may run."""
        return ()

    @property
    def own_functions(self) -> bool:
        """Whether it calls functions that threads had better not run at once; processes may."""
        return False

    @property
    def only_decodes(self) -> bool:
        """Whether it decodes images and little else, which takes no interpreter lock."""
        return False

    # --- epochs and processes ---

    @property
    def own_epochs(self) -> bool:
        """Whether batches change between epochs, so that none may be computed early."""
        return False

    def enter_epoch(self, epoch: int) -> bool:
        """An epoch begins; whether what processes have got of the plan is out of date now."""
        return False

    def stand_in(self) -> None:
        """Of a copy: it is computed with in the process that has sent it."""

    def renew_locks(self) -> None:
        """In a forked process, where whoever held them is not."""
