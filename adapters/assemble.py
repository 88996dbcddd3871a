"""One batch: fetch, transform, collate, into memory that the caller owns.

A ``Plan`` is the pure function that everything rests on: what it returns for (epoch, batch index)
depends on nothing else, so any thread or process may compute any batch, any number of times. It
asks ``allocate(shape, dtype)`` for the memory of the batch, which is how a worker process has the
samples written straight into the slot that it shares with the trainer.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.collate import Layout, collate, fill
from adapters.errors import note
from adapters.generators import BATCH_TRANSFORM, DECODE, TRANSFORM, generator, generators
from adapters.order import Order
from adapters.sources import AnySource, ArraySource, MapSource, RecordSource, SequenceSource
from adapters.structure import as_arrays, flatten, private

Allocate = Callable[[tuple[int, ...], "np.dtype[Any]"], NDArray[Any]]
OnError = Literal["raise", "skip"] | Callable[[Exception, int], Any]

# Alignment from which TensorFlow and JAX take an array on the CPU without copying it.
ALIGNMENT_BYTES = 64
# With on_error="skip": neighbours that are tried before the data set is taken to be broken.
_SKIP_TRIES = 100


class Assembled(NamedTuple):
    """A batch and what is known about its making."""

    batch: Any
    """The batch: a structure of arrays, first axis the samples."""
    layout: Layout | None
    """How the collated samples lie in memory, before ``batch_transform``; None for whole batches
    of a sequence and where a batch can't be filled in parts."""
    skipped: int
    """Samples that ``on_error`` replaced."""


@dataclass
class Plan:
    """The pure function (epoch, batch index) -> batch.

    Args:
        source: Where samples, or whole batches, come from.
        order: Which samples make which batch.
        transform: ``transform(sample)`` or ``transform(sample, rng)``.
        batch_transform: ``batch_transform(batch)`` or ``batch_transform(batch, rng)``.
        seed: Of the generators that the transforms are given.
        on_error: What happens to a sample that can't be fetched or transformed: ``"raise"``;
            ``"skip"``, the sample with the next higher number that can (wrapping around) takes its
            place; or ``on_error(exception, sample_number)`` returns a finished sample in its place.
    """

    source: AnySource
    order: Order
    transform: Callable[..., Any] | None = None
    batch_transform: Callable[..., Any] | None = None
    seed: int = 0
    on_error: OnError = "raise"
    _generator_arguments: tuple[str | None, str | None] = field(init=False)

    def __post_init__(self) -> None:
        self._generator_arguments = (
            generator_argument(self.transform),
            generator_argument(self.batch_transform),
        )

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self.order)

    @property
    def own_epochs(self) -> bool:
        """Whether the source changes between epochs, so that none may be computed early."""
        return isinstance(self.source, SequenceSource) and self.source.own_epochs

    @property
    def threads(self) -> bool:
        """Whether threads beside the consumer's give the same batches; it is told which to use."""
        return True

    @property
    def own_functions(self) -> bool:
        """Whether it calls functions that threads had better not run at once; processes may."""
        return False

    @property
    def only_decodes(self) -> bool:
        """Whether it decodes images and little else, which takes no interpreter lock."""
        source = self.source
        decodes = isinstance(source, RecordSource) and source.decodes
        return decodes and self.batch_transform is None and self._foretold() is not None

    def batch(self, epoch: int, index: int, allocate: Allocate) -> Assembled:
        """Compute batch ``index`` of ``epoch``.

        Raises:
            Exception: Whatever the source or a transform raises, with notes that name the sample
                and the batch.
            ValueError: Samples that don't fit together.
        """
        layout, skipped = None, 0
        if isinstance(self.source, SequenceSource):
            batch = self._whole(self.source, self.order.first(epoch, index), epoch, index)
            return Assembled(self.finish(epoch, index, batch), None, 0)
        numbers = self.order.batch(epoch, index)
        if self.batch_transform is not None:
            # What is collated is not the batch yet.
            allocate = np.empty
        if self.transform is None and isinstance(self.source, ArraySource):
            batch = self.source.gather(numbers, allocate)
        elif (known := self._foretold()) is not None:
            columns = known.allocate(len(numbers), allocate)
            skipped = self._filled(epoch, index, numbers, columns)
            batch, layout = tuple(columns), known
        else:
            samples = _Samples(self, epoch, index, numbers)
            batch, layout = collate(samples, numbers, allocate)
            skipped = samples.skipped
        return Assembled(self.finish(epoch, index, batch), layout, skipped)

    def part(
        self, epoch: int, index: int, start: int, rows: Sequence[NDArray[Any]], layout: Layout
    ) -> int:
        """Compute rows ``start`` and on of a batch whose layout is known, into ``rows``.

        Args:
            epoch: Epoch of the batch.
            index: Number of the batch.
            start: First row of the part.
            rows: One array per leaf, ``(rows in the part, ...)``.
            layout: Of the samples.

        Returns:
            How many samples ``on_error`` replaced.

        Raises:
            LayoutChanged: A sample doesn't fit; compute the batch whole.
        """
        numbers = self.order.batch(epoch, index)[start : start + len(rows[0])]
        if self._foretold() is not None:
            return self._filled(epoch, index, numbers, rows)
        samples = _Samples(self, epoch, index, numbers)
        fill(samples, rows, layout)
        return samples.skipped

    def finish(self, epoch: int, index: int, batch: Any) -> Any:
        """Apply ``batch_transform`` to a collated batch."""
        if self.batch_transform is None:
            return batch
        try:
            batch = self._call(BATCH_TRANSFORM, self.batch_transform, batch, epoch, index)
            if batch is None:
                raise ValueError("batch_transform must return a batch, got None")
        except BaseException as error:
            note(error, f"in batch_transform, batch {index} of epoch {epoch}")
            raise
        return as_arrays(batch)

    def settle(self, assembled: Assembled) -> None:
        """Wait until the batch is there; NumPy has it at once."""

    def sample(self, epoch: int, number: int) -> Any:
        """Fetch and transform one sample."""
        return self._transformed(self.fetched(epoch, number), epoch, number)

    def fetched(self, epoch: int, number: int) -> Any:
        """Fetch one sample."""
        assert not isinstance(self.source, SequenceSource)
        if isinstance(self.source, RecordSource) and self.source.draws:
            return self.source.sample(number, generator(self.seed, epoch, number, DECODE))
        return self.source.sample(number)

    @property
    def stored(self) -> bool:
        """Whether what the source returns may be what it stores, which nobody may write into."""
        return isinstance(self.source, MapSource)

    def _foretold(self) -> Layout | None:
        """The layout of batches that the source writes itself; None where samples are collated."""
        if self.transform is not None or not isinstance(self.source, RecordSource):
            return None
        leaves = self.source.leaves
        return None if leaves is None else Layout(tuple(range(len(leaves))), leaves)

    def _filled(
        self, epoch: int, index: int, numbers: NDArray[np.int64], rows: Sequence[NDArray[Any]]
    ) -> int:
        """Have the source write these samples; how many ``on_error`` replaced."""
        assert isinstance(self.source, RecordSource)
        source, samples = self.source, _Samples(self, epoch, index, numbers)

        def filled(own: NDArray[np.int64], into: Sequence[NDArray[Any]]) -> Any:
            rng_of = generators(self.seed, epoch, DECODE) if source.draws else None
            return source.fill(own, rng_of, into)

        def another(number: int) -> tuple[Any, ...]:
            one = [np.empty((1, *column.shape[1:]), column.dtype) for column in rows]
            for _, error in filled(np.array([number]), one):
                raise error
            return tuple(column[0] for column in one)

        # Of several that failed, it is the first in the batch that is raised.
        for row, error in sorted(filled(numbers, rows), key=lambda failure: failure[0]):
            leaves = flatten(samples.replacement(error, int(numbers[row]), another))[0]
            if len(leaves) != len(rows):
                raise ValueError(
                    "on_error must return a sample like the others, (array, label), got "
                    f"{len(leaves)} members"
                )
            for column, value in zip(rows, leaves):
                if np.shape(value) != column.shape[1:]:
                    raise ValueError(
                        f"on_error must return a sample like the others, with {column.shape[1:]} "
                        f"in this place, got {np.shape(value)}"
                    )
                column[row] = value
                if not np.array_equal(column[row], value, equal_nan=column.dtype.kind in "fc"):
                    raise ValueError(
                        f"on_error must return a sample like the others, of {column.dtype} in this "
                        f"place, got {np.asarray(value).dtype}"
                    )
        return samples.skipped

    def _transformed(self, sample: Any, epoch: int, number: int) -> Any:
        if self.transform is not None:
            if self.stored:
                sample = private(sample)
            sample = self._call(TRANSFORM, self.transform, sample, epoch, number)
        if sample is None:
            made_by = "source" if self.transform is None else "transform"
            raise ValueError(f"{made_by} must return a sample, got None")
        return sample

    def _call(
        self, stream: int, function: Callable[..., Any], item: Any, epoch: int, number: int
    ) -> Any:
        argument = self._generator_arguments[stream]
        if argument is None:
            return function(item)
        rng = generator(self.seed, epoch, number, stream)
        return function(item, rng) if argument == "second" else function(item, rng=rng)

    def _whole(self, source: SequenceSource, number: int, epoch: int, index: int) -> Any:
        try:
            batch = source.batch(number)
            if batch is None:
                raise ValueError(f"source must return a batch for number {number}, got None")
            if self.batch_transform is not None:
                batch = private(batch)
        except BaseException as error:
            note(error, f"in item {number} of the source, batch {index} of epoch {epoch}")
            raise
        return as_arrays(batch)


class _Samples:
    """Fetches and transforms the samples of a batch one after another, minding ``on_error``."""

    def __init__(self, plan: Plan, epoch: int, index: int, numbers: NDArray[np.int64]) -> None:
        self._plan = plan
        self._epoch = epoch
        self._index = index
        self._numbers = numbers
        self.skipped = 0

    def __iter__(self) -> Iterator[Any]:
        plan, epoch = self._plan, self._epoch
        fetched = self._fetch()
        transform, rng, stored = plan.transform, plan._generator_arguments[0], plan.stored
        for row, number in enumerate(self._numbers.tolist()):
            try:
                sample = plan.fetched(epoch, number) if fetched is None else fetched[row]
                if transform is None or rng:
                    sample = plan._transformed(sample, epoch, number)
                else:
                    sample = transform(private(sample) if stored else sample)
                    if sample is None:
                        raise ValueError("transform must return a sample, got None")
            except BaseException as raised:
                sample = self.replacement(_for_a_generator(raised), number)
            yield sample

    def _fetch(self) -> Sequence[Any] | None:
        """All samples of the batch at once; None where they must be fetched one at a time."""
        source = self._plan.source
        assert not isinstance(source, SequenceSource)
        if isinstance(source, RecordSource):
            return None  # One sample in memory at a time, which its own generator may have drawn.
        try:
            return source.samples(self._numbers)
        except BaseException as error:
            if self._plan.on_error != "raise" and isinstance(error, Exception):
                return None
            listed = ", ".join(map(str, self._numbers[:8])) + ", ..." * (len(self._numbers) > 8)
            note(error, f"in samples {listed}, batch {self._index} of epoch {self._epoch}")
            raise

    def replacement(
        self, error: BaseException, number: int, another: Callable[[int], Any] | None = None
    ) -> Any:
        """What takes the place of a sample that failed.

        Args:
            error: How it did.
            number: Of the sample.
            another: Makes a sample by its number; None for fetching and transforming it.

        Raises:
            BaseException: ``error``, with a note, where nothing does.
        """
        plan = self._plan
        note(error, f"in sample {number}, batch {self._index} of epoch {self._epoch}")
        if plan.on_error == "raise" or not isinstance(error, Exception):
            try:
                raise error
            finally:
                del error  # The traceback would refer to it through this frame, in a circle.
        self.skipped += 1
        if plan.on_error != "skip":
            try:
                sample = plan.on_error(error, number)
                if sample is None:
                    raise ValueError("on_error must return a sample, got None")
                return sample
            except BaseException as another:
                note(another, f"in on_error, for sample {number}")
                raise
        for step in range(1, min(_SKIP_TRIES, plan.order.size - 1) + 1):
            try:
                other = (number + step) % plan.order.size
                return plan.sample(self._epoch, other) if another is None else another(other)
            except Exception:  # noqa: S112 - the first error says enough
                continue
        note(error, f"and on_error='skip' found no other sample that works in {_SKIP_TRIES}")
        raise error


def _for_a_generator(error: BaseException) -> BaseException:
    """The error, or what may leave a generator in its place."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError("source or transform raised StopIteration")
    wrapped.__cause__ = error
    return wrapped


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An uninitialised array that starts at a multiple of ``ALIGNMENT_BYTES``."""
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        return np.empty(shape, dtype)
    size = math.prod(shape) * dtype.itemsize
    block = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    start = -block.__array_interface__["data"][0] % ALIGNMENT_BYTES
    return block[start : start + size].view(dtype).reshape(shape)


def generator_argument(function: Callable[..., Any] | None) -> Literal["second", "rng"] | None:
    """How ``function`` wants its random generator.

    As its second argument if that has no default or is called ``rng``; by the name ``rng`` if that
    can't be given otherwise; not at all if there is neither.
    """
    if function is None:
        return None
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # Some callables written in C don't tell.
        return None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) > 1:
        second = positional[1]
        if second.default is inspect.Parameter.empty or second.name == "rng":
            return "second"
    if any(p.name == "rng" and p.kind is p.KEYWORD_ONLY for p in parameters):
        return "rng"
    return None
