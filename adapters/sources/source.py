"""What a plan asks of a source of single samples, with the answers that most of them give.

A new kind of source is a subclass in a file of its own, and a line in ``sources.kinds``. ``Subset``
is some samples of any of them; as ``Source.select`` makes it, it is here.
"""

from __future__ import annotations

import abc
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.foretold import Window
from adapters.generators import DECODE, RngOf, generator, source_generator
from adapters.ownership import Allocate
from adapters.sources.origin import Located, Origin
from adapters.sources.selection import chosen_of

Leaf = tuple[tuple[int, ...], "np.dtype[Any]"]
_MOST_SPREAD = 4  # Times as long as its chosen samples a stretch may be, to be read ahead.


class Source(Located, abc.ABC):
    """Samples by number. It changes nothing while it answers.

    Many threads may ask at once, but where there is ``own_code`` that isn't thread-safe: whoever
    asks from several threads holds a ``Gate`` of that meanwhile.
    """

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
        """The same, as any map-style data set has it, or a list of samples for a slice.

        What is random is drawn again each time. Where a data set or a transform of a loader asks,
        it depends on the seed, the epoch and the sample that is made there, alone.

        Raises:
            IndexError: Out of range.
            TypeError: No integer and no slice.
        """
        if isinstance(index, slice):
            return [self._drawn(number) for number in range(*index.indices(len(self)))]
        try:
            number = operator.index(index)
        except TypeError:
            raise TypeError(f"sample number must be an integer or a slice, got {index!r}") from None
        size = len(self)
        if not -size <= number < size:
            raise IndexError(f"sample number must be in range({-size}, {size}), got {number}")
        return self._drawn(number % size)

    def __iter__(self) -> Iterator[Any]:
        """The samples in order."""
        return map(self._drawn, range(len(self)))

    def _drawn(self, number: int) -> Any:
        """The sample of this number for who has no generator for it."""
        return self.sample(number, source_generator() if self.draws else None)

    def select(self, numbers: Any) -> Source:
        """These samples as a source, numbered anew in this order; nothing is read or copied.

        Args:
            numbers: Sample numbers, as ``[i]`` takes them, perhaps some of them several times, or a
                boolean mask with a value for each sample.

        Returns:
            A source that is read as this one is. What is random depends on a sample's new number.

        Raises:
            IndexError: A number out of range.
            TypeError: Something else than numbers or a mask, or a source of whole batches.
            ValueError: A mask of another length.
        """
        return Subset(self, chosen_of(numbers, len(self)))

    def samples(self, numbers: NDArray[np.int64]) -> Sequence[Any] | None:
        """The samples of a batch, fetched at once; None where they are fetched one at a time."""
        return None

    def fetch(self, numbers: NDArray[np.int64]) -> None:
        """Read samples as they are stored, and forget them."""
        fetched = self.samples(numbers)
        for _ in fetched if fetched is not None else map(self.sample, numbers.tolist()):
            pass

    def expect(self, numbers: NDArray[np.int64], elsewhere: bool) -> None:
        """Samples are going to be asked for: begin to fetch what takes long, and don't wait.

        Args:
            numbers: Of the samples.
            elsewhere: They are asked for in another process.
        """

    def bring(self, numbers: NDArray[np.int64]) -> None:
        """All of these samples are asked for now: fetch at once what takes long.

        Raises:
            ConnectionError: A store doesn't answer.
        """

    # --- a batch at a time ---

    @property
    def gathers(self) -> bool:
        """Whether ``gather`` makes a batch without a step for each sample."""
        return False

    def gather(self, numbers: NDArray[np.int64], allocate: Allocate) -> Any:
        """The samples of these numbers as one batch, in memory from ``allocate``."""
        raise NotImplementedError

    def gather_into(
        self, numbers: NDArray[np.int64], places: NDArray[np.int64], rows: Sequence[NDArray[Any]]
    ) -> bool:
        """Gather samples into some rows of a batch; whether that was done, or is for ``gather``."""
        return False

    def united(self, others: Sequence[Source]) -> Source | None:
        """This one and others, one after another, asked for a batch at once; None if they can't."""

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

    def padded(self, samples: list[Any], extra: int = 0) -> list[Any]:
        """The samples of a batch, made equally long, and ``extra`` longer, where it knows how."""
        return samples

    def fill(
        self, numbers: NDArray[np.int64], rng_of: RngOf | None, rows: Sequence[NDArray[Any]]
    ) -> list[tuple[int, Exception]]:
        """Write samples into rows of a batch; where ``leaves`` are known.

        Args:
            numbers: Of the samples, ``(rows,)``.
            rng_of: A sample's generator by its place among them, good until the next; None where
                nothing is drawn.
            rows: An array for each of ``leaves``, with an axis for the rows before.

        Returns:
            Which rows couldn't be written, and why.
        """
        raise NotImplementedError

    # --- traits ---

    @property
    def own_code(self) -> tuple[Any, ...]:
        """The functions and objects of the user's own that make samples."""
        return (self,)

    @property
    def python_numbers(self) -> bool:
        """Whether a label is a Python number, and not one of NumPy's."""
        return False

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

    def remedy(self, shape: tuple[int, ...]) -> str:
        """What makes arrays of unequal shapes equal, for people; ``shape`` is that of one."""
        return "pad, crop or resize in transform"

    def way(self, transformed: bool) -> str:
        """How samples come from it, for people; ``transformed`` one by one, or not."""
        return "samples, asked for one at a time"

    # --- what an order asks ---

    @property
    def sample_bytes(self) -> float | None:
        """Bytes of a sample on average, as it is stored; None where only samples tell."""
        return None

    def will_read(self, first: int, last: int, window: Window | None = None) -> None:
        """Samples ``first`` to ``last - 1`` are going to be read soon; read ahead, if that helps.

        It is no error if they can't be read, and takes no time to speak of. Of the window that they
        are of, see ``Window``.
        """

    def labels_of(self, numbers: NDArray[np.int64], lightly: bool = False) -> NDArray[Any] | None:
        """A label for each sample, where it is had without that; of few, ``lightly``, unchecked."""
        return None

    def arranged(self, shuffle: Any, seed: int, tolerant: bool = False) -> Any:
        """The order that belongs to the source, an ``Arrangement``; None where it has none."""
        return None

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

    def enter_epoch(self, epoch: int) -> bool:
        """Be in this epoch; whether one has ended.

        Hooks are called once per epoch, however often that is replayed.
        """
        return False

    def turn(self) -> None:
        """End an epoch of what has no end, and begin the next."""

    def renew_locks(self) -> None:
        """In a forked process, where whoever held them is not."""


def _of_the_whole(name: str) -> Any:
    return property(operator.attrgetter(f"whole.{name}"), doc="That of the whole source.")


class Subset(Source):
    """Some samples of a source, numbered anew: as fast as the whole, as it is asked the same way.

    Pickled for worker processes, the numbers are an array that they share.

    Args:
        whole: The source; of a ``Subset``, the numbers are looked up once and for all.
        numbers: Of the samples, int64 ``(samples,)``, in ``range(len(whole))``.

    Raises:
        TypeError: The source's items are whole batches.
    """

    def __init__(self, whole: Source, numbers: NDArray[np.int64]) -> None:
        if whole.whole_batches:
            raise TypeError(
                "source must give single samples to be selected from, got one of whole batches: "
                "select from the arrays or the data set that these are made of"
            )
        self.whole = whole
        self.numbers = numbers

    def __len__(self) -> int:
        """How many were chosen."""
        return len(self.numbers)

    def select(self, numbers: Any) -> Source:
        """Some of these, of the same whole source."""
        return self.whole.select(self.numbers[chosen_of(numbers, len(self))])

    def sample(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """The sample of this number."""
        if rng is None and self.draws:
            rng = generator(0, 0, number, DECODE)
        return self.whole.sample(int(self.numbers[number]), rng)

    def origin(self, number: int, rng: np.random.Generator) -> Origin:
        """Where a sample lies in the whole source."""
        return self.whole.origin(int(self.numbers[number]), rng)

    def samples(self, numbers: NDArray[np.int64]) -> Sequence[Any] | None:
        """The samples of a batch, if the whole source fetches them at once."""
        return self.whole.samples(self.numbers[numbers])

    def fetch(self, numbers: NDArray[np.int64]) -> None:
        """Read samples as they are stored, and forget them."""
        self.whole.fetch(self.numbers[numbers])

    def expect(self, numbers: NDArray[np.int64], elsewhere: bool) -> None:
        """Have the whole source begin to fetch them."""
        self.whole.expect(self.numbers[numbers], elsewhere)

    def bring(self, numbers: NDArray[np.int64]) -> None:
        """Have the whole source fetch them at once."""
        self.whole.bring(self.numbers[numbers])

    def gather(self, numbers: NDArray[np.int64], allocate: Allocate) -> Any:
        """The samples of these numbers as one batch."""
        return self.whole.gather(self.numbers[numbers], allocate)

    def padded(self, samples: list[Any], extra: int = 0) -> list[Any]:
        """The samples of a batch, made equally long."""
        return self.whole.padded(samples, extra)

    def fill(
        self, numbers: NDArray[np.int64], rng_of: RngOf | None, rows: Sequence[NDArray[Any]]
    ) -> list[tuple[int, Exception]]:
        """Write samples into rows of a batch."""
        return self.whole.fill(self.numbers[numbers], rng_of, rows)

    def way(self, transformed: bool) -> str:
        """How samples come from it, for people."""
        return f"{len(self)} of {len(self.whole)}: {self.whole.way(transformed)}"

    gathers = _of_the_whole("gathers")
    leaves = _of_the_whole("leaves")
    skeleton = _of_the_whole("skeleton")
    pads = _of_the_whole("pads")
    own_code = _of_the_whole("own_code")
    python_numbers = _of_the_whole("python_numbers")
    makes_samples = _of_the_whole("makes_samples")
    stored = _of_the_whole("stored")
    fetches_many = _of_the_whole("fetches_many")
    draws = _of_the_whole("draws")
    decodes = _of_the_whole("decodes")
    holds_images = _of_the_whole("holds_images")
    remedy = _of_the_whole("remedy")
    own_epochs = _of_the_whole("own_epochs")
    sample_bytes = _of_the_whole("sample_bytes")
    classes: Any = property(lambda self: getattr(self.whole, "classes", None))

    def will_read(self, first: int, last: int, window: Window | None = None) -> None:
        """These samples are going to be read; nothing is done if they lie far from each other."""
        numbers = self.numbers[first:last]
        begin, end = int(numbers.min()), int(numbers.max()) + 1
        if end - begin <= _MOST_SPREAD * len(numbers):
            self.whole.will_read(begin, end, window)

    def labels_of(self, numbers: NDArray[np.int64], lightly: bool = False) -> NDArray[Any] | None:
        """A label for each of these samples."""
        return self.whole.labels_of(self.numbers[numbers], lightly)

    def enter_epoch(self, epoch: int) -> bool:
        """Be in this epoch; whether one has ended."""
        return self.whole.enter_epoch(epoch)

    def renew_locks(self) -> None:
        """In a forked process."""
        self.whole.renew_locks()
