"""Plans and batch keys: the interface between the engine and the code that makes batches.

    Stream --key--> Dispatcher --key--> executor --key--> Plan.batch(key) -> arrays

A plan is a pure function: the batch for (epoch, batch index) depends on nothing else, so any thread
or process may compute any batch, any number of times. It gets the memory of a batch from
``allocate(shape, dtype)``. In a worker process, samples are thus written directly into the slot
shared with the trainer.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from adapters.ownership import Allocate as Allocate
from adapters.user_code import Gate


class BatchKey(NamedTuple):
    """Name of one batch: a plan makes the same batch for an equal key.

    ``samples`` is for passes whose order isn't known ahead, ``origin`` for epochs resumed in their
    middle.
    """

    epoch: int
    """Epoch of the batch."""
    index: int  # type: ignore[assignment]  # More useful than tuple.index.
    """Number of the batch in the epoch."""
    samples: Sequence[Any] | None = None
    """Sample numbers that a sampler has drawn for the batch, or the sampler's other names for them.
    None if the plan's order determines them."""
    origin: int = 0
    """Position in the epoch's global order at which batch 0 would begin. May be negative, if the
    epoch was started with another batch size or number of shards."""

    @property
    def order_arguments(self) -> tuple[int, int, int]:
        """Arguments of ``Order.batch``: (epoch, index, origin)."""
        return self.epoch, self.index, self.origin


class ResumedEpoch(NamedTuple):
    """The remaining part of an epoch that was resumed after some samples of the global order.

    Its batches have the last numbers of the epoch, so it ends where a whole epoch does.
    """

    epoch: int
    """Number of the epoch."""
    step: int
    """First batch of the remaining part."""
    origin: int
    """Value of ``BatchKey.origin`` for its batches."""
    others: bool = False
    """True if the earlier samples were consumed elsewhere, in batches that can't be named here.
    ``origin`` may be 0 all the same."""

    def covers(self, epoch: int, step: int) -> bool:
        """True if a batch belongs to the remaining part."""
        return epoch == self.epoch and step >= self.step

    def key(
        self, epoch: int, step: int, number: Callable[[int, int], int] | None = None
    ) -> BatchKey:
        """Return the key of the batch at a step.

        ``number`` maps a step of a whole epoch to a batch; None if they are the same.
        """
        if self.covers(epoch, step):
            return BatchKey(epoch, step, origin=self.origin)
        return BatchKey(epoch, step if number is None else number(epoch, step))


WHOLE = ResumedEpoch(-1, 0, 0)
"""No resumed epoch: all epochs are whole."""


class Assembled(NamedTuple):
    """A batch, and facts about its computation."""

    batch: Any
    """A structure of arrays whose first axis is the samples."""
    skipped: int
    """Number of samples that were replaced."""
    converted: Any = None
    """The batch in the trainer's form, if it was converted ahead; see ``Stream.convert``."""


class Plan(abc.ABC):
    """Computes the batches of one loader."""

    order: Any
    """The ``Order`` of the samples; a ``DrawnOrder`` if the keys carry them."""
    draws: frozenset[str] = frozenset()
    """Global random generators that user code draws from, such as ``"numpy"``."""
    guessed: frozenset[str] = frozenset()
    """Others that it may draw from; see ``SourcePlan``."""
    on_error: Any = "raise"
    thread_safe: bool | None = None
    """True if several threads may run user code; None to follow what each part declares."""
    calls_users_functions = False
    """True if it calls functions that run better in processes than in several threads."""
    mostly_waits = False
    """True once worker processes have found that more of them than CPUs help."""
    _gate: Gate
    _batch_gate: Gate

    def _make_gates(
        self, of_samples: list[tuple[str, Any]], of_batches: list[tuple[str, Any]]
    ) -> None:
        """Find out which code one thread at a time may run: all of it, or only that of batches."""
        if callable(self.on_error):
            of_samples = [*of_samples, ("on_error", self.on_error)]
        self._batch_gate = Gate(of_batches, self.thread_safe)
        self._gate = Gate(of_samples, self.thread_safe)
        # The global generators are locked inside, so the gate has to be the outer lock.
        if self._gate or ((self.draws or self.guessed) and self._batch_gate):
            self._gate = Gate(of_samples + of_batches, self.thread_safe)

    @abc.abstractmethod
    def batch(self, key: BatchKey, allocate: Allocate) -> Assembled:
        """Compute a batch; errors of user code have notes that say where."""

    @property
    def num_batches(self) -> int | None:
        """Number of batches in an epoch; None if it has no end, or the number is unknown."""
        return self.order.num_batches  # type: ignore[no-any-return]

    @property
    def batch_size(self) -> int:
        """Number of samples in most batches."""
        return self.order.batch_size  # type: ignore[no-any-return]

    def samples(self, key: BatchKey) -> Any:
        """Numbers of the samples of a batch, or whatever names a sampler has drawn."""
        return self.order.batch(*key.order_arguments) if key.samples is None else key.samples

    def _for_samples(
        self, collate: Callable[..., Any], key: BatchKey, alone: Callable[[Any], Any]
    ) -> Callable[..., Any]:
        """Bind a collate to the samples of a batch, if it has ``for_samples``.

        It may also request another single sample, which ``alone`` makes as in epoch 0.
        """
        bind = getattr(collate, "for_samples", None)
        return collate if bind is None else bind(self.samples(key), alone)

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
        return not self.draws  # They share the global generators.

    @property
    def one_thread_at_a_time(self) -> bool:
        """True if one thread at a time makes samples, because user code isn't thread-safe."""
        return bool(self._gate)

    @property
    def not_thread_safe(self) -> tuple[str, ...]:
        """Arguments whose code only one thread at a time may run."""
        return self._gate.names or self._batch_gate.names

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

    def check_length(self) -> bool:
        """Return True if the worker processes' copies are outdated by a changed length."""
        return False

    def renew_locks(self) -> None:
        """Replace all locks in a forked process, because their holders were not forked."""
