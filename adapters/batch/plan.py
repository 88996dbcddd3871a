"""What the engine asks of whatever makes batches. It knows nothing else about them.

A plan is a pure function: what it makes for (epoch, batch index) depends on nothing else, so any
thread or process may compute any batch, any number of times. It asks ``allocate(shape, dtype)`` for
the memory of the batch, which is how a worker process has the samples written straight into the
slot that it shares with the trainer.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

from adapters.batch.key import BatchKey
from adapters.ownership import Allocate as Allocate


class Assembled(NamedTuple):
    """A batch and what is known about its making."""

    batch: Any
    """The batch: a structure of arrays, first axis the samples."""
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

    def renew_locks(self) -> None:
        """In a forked process, where whoever held them is not."""
