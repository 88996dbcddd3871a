"""Plan: the interface between the engine and the code that makes batches.

A plan is a pure function: the batch for (epoch, batch index) depends on nothing else, so any thread
or process may compute any batch, any number of times. It gets the memory of a batch from
``allocate(shape, dtype)``. In a worker process, samples are thus written directly into the slot
shared with the trainer.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

from adapters.batch.key import BatchKey
from adapters.ownership import Allocate as Allocate


class Assembled(NamedTuple):
    """A batch, and facts about its computation."""

    batch: Any
    """A structure of arrays whose first axis is the samples."""
    skipped: int
    """Number of samples that were replaced."""


class Plan(abc.ABC):
    """Computes the batches of one loader."""

    @property
    @abc.abstractmethod
    def num_batches(self) -> int | None:
        """Number of batches in an epoch; None if it has no end, or the number is unknown."""

    @property
    @abc.abstractmethod
    def batch_size(self) -> int:
        """Number of samples in most batches."""

    @abc.abstractmethod
    def batch(self, key: BatchKey, allocate: Allocate) -> Assembled:
        """Compute a batch.

        Raises:
            Exception: Any error from user code, with notes that say where.
        """

    @abc.abstractmethod
    def rows(self, key: BatchKey) -> int:
        """Number of samples in a batch."""

    def shuffled(self, epoch: int, step: int) -> int:
        """Number of the batch at ``step`` when whole batches are permuted."""
        return step

    def prefetch(self, key: BatchKey, elsewhere: bool) -> None:
        """Start fetching the data of a batch, for this process or ``elsewhere``; never blocks."""

    def longer(self, epoch: int) -> list[Any]:
        """Batches of other lengths than the real ones, if there can be any; see ``SourcePlan``."""
        return []

    def wait_for(self, assembled: Assembled) -> None:
        """Wait until the batch is computed, if a framework computes asynchronously."""

    # --- properties that the choice of workers depends on ---

    @property
    def threads(self) -> bool:
        """True if threads may compute several batches at once, with the same results."""
        return True

    @property
    def one_thread_at_a_time(self) -> bool:
        """True if one thread at a time makes samples, because user code isn't thread-safe."""
        return False

    @property
    def not_thread_safe(self) -> tuple[str, ...]:
        """Arguments whose code only one thread at a time may run."""
        return ()

    @property
    def calls_users_functions(self) -> bool:
        """True if it calls functions that run better in processes than in several threads."""
        return False

    @property
    def only_decodes(self) -> bool:
        """True if it does little else than decode images, which releases the GIL."""
        return False

    # --- epochs and processes ---

    @property
    def changes_between_epochs(self) -> bool:
        """True if batches change between epochs, so that none may be computed early."""
        return False

    def enter_epoch(self, epoch: int) -> bool:
        """Enter an epoch; return True if the worker processes' copies of the plan are outdated."""
        return False

    def renew_locks(self) -> None:
        """Replace all locks in a forked process, because their holders were not forked."""
