"""What a plan asks of a source of single samples, with the answers that most of them give.

A new kind of source is a subclass in a file of its own, and a line in ``sources.kinds``.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.ownership import Allocate

Leaf = tuple[tuple[int, ...], "np.dtype[Any]"]


class Source(abc.ABC):
    """Samples by number. It changes nothing while it answers, and many threads may ask at once."""

    # --- samples ---

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many samples; of whole batches, how many of these."""

    @abc.abstractmethod
    def sample(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """The sample of this number.

        Args:
            number: In ``range(len(self))``.
            rng: The sample's own generator, where the source ``draws``.
        """

    def __getitem__(self, index: Any) -> Any:
        """The same, as any map-style data set has it."""
        return self.sample(index)

    def samples(self, numbers: NDArray[np.int64]) -> Sequence[Any] | None:
        """The samples of a batch, fetched at once; None where they are fetched one at a time."""
        return None

    def fetch(self, numbers: NDArray[np.int64]) -> None:
        """Read samples as they are stored, and forget them."""
        fetched = self.samples(numbers)
        for _ in fetched if fetched is not None else map(self.sample, numbers.tolist()):
            pass

    # --- a batch at a time ---

    @property
    def gathers(self) -> bool:
        """Whether ``gather`` makes a batch without a step for each sample."""
        return False

    def gather(self, numbers: NDArray[np.int64], allocate: Allocate) -> Any:
        """The samples of these numbers as one batch, in memory from ``allocate``."""
        raise NotImplementedError

    @property
    def leaves(self) -> tuple[Leaf, ...] | None:
        """Shape and dtype of every sample's leaves, where ``fill`` writes them into the batch."""
        return None

    @property
    def skeleton(self) -> Any:
        """A sample with leaf numbers in the leaves' places, where ``leaves`` are known."""
        return tuple(range(len(self.leaves or ())))

    @property
    def pads(self) -> bool:
        """Whether ``padded`` makes samples equally long."""
        return False

    def padded(self, samples: list[Any]) -> list[Any]:
        """The samples of a batch, made equally long where the source knows with what."""
        return samples

    def fill(
        self,
        numbers: NDArray[np.int64],
        rng_of: Callable[[int], np.random.Generator] | None,
        rows: Sequence[NDArray[Any]],
    ) -> list[tuple[int, Exception]]:
        """Write samples into rows of a batch; where ``leaves`` are known.

        Args:
            numbers: Of the samples, ``(rows,)``.
            rng_of: A sample's generator by its number, good until the next is asked for; None where
                nothing is drawn.
            rows: An array for each of ``leaves``, with an axis for the rows before.

        Returns:
            Which rows couldn't be written, and why.
        """
        raise NotImplementedError

    # --- traits ---

    @property
    def makes_samples(self) -> bool:
        """Whether code of the user's own makes samples, and may use its memory again."""
        return True

    @property
    def stored(self) -> bool:
        """Whether nobody may write into a sample, as it may be what the source stores."""
        return True

    @property
    def fetches_many(self) -> bool:
        """Whether ``samples`` runs the user's code once for a batch."""
        return False

    @property
    def draws(self) -> bool:
        """Whether a sample depends on its generator."""
        return False

    @property
    def decodes(self) -> bool:
        """Whether it decodes images and does nothing else, which takes no interpreter lock."""
        return False

    @property
    def holds_images(self) -> bool:
        """Whether samples are (image, label)."""
        return False

    @property
    def remedy(self) -> str:
        """What makes samples of unequal shapes equal, for people."""
        return "pad, crop or resize in transform"

    def way(self, transformed: bool) -> str:
        """How samples come from it, for people; ``transformed`` one by one, or not."""
        return "samples, asked for one at a time"

    # --- sources of whole batches ---

    @property
    def whole_batches(self) -> bool:
        """Whether its items are whole batches, which ``batch`` gives."""
        return False

    def batch(self, number: int, allocate: Allocate = np.empty) -> Any:
        """The whole batch of this number, in memory that nobody else writes to."""
        raise NotImplementedError

    @property
    def endless(self) -> bool:
        """Whether any number is the number of a batch."""
        return False

    @property
    def own_epochs(self) -> bool:
        """Whether its batches change with the epoch, so that none may be read early."""
        return False

    @property
    def most_at_once(self) -> int | None:
        """How many threads may ask at once; None where it doesn't matter."""
        return None

    def enter_epoch(self, epoch: int) -> bool:
        """Be in this epoch; whether one has ended.

        Hooks are called once per epoch, however often that is replayed.
        """
        return False

    def turn(self) -> None:
        """End an epoch of what has no end, and begin the next."""

    def warn_if_it_waits(self, threads: int) -> None:
        """Say once, if so, that calls wait in turn which so many threads could wait for at once."""

    def renew_locks(self) -> None:
        """In a forked process, where whoever held them is not."""
