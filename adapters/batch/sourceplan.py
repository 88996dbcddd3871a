"""Plan for batches of a source: fetch, transform, collate, into memory that the caller owns.

    source.gather --------------------------------------> batch_transform
    source.fill ----------------------------------------> batch_transform
    source.samples --> transform --> collate -----------> batch_transform
    source.samples --> transform --> the user's collate --> batch_transform
    source.batch ---------------------------------------> batch_transform

The source's properties decide which path a batch takes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.alignment import aligned_empty
from adapters.batch.collate import Probe, collate
from adapters.batch.key import BatchKey
from adapters.batch.order import Order
from adapters.batch.plan import Allocate, Assembled, Plan
from adapters.batch.replacement import OnError, put
from adapters.batch.samples import Samples, collate_for
from adapters.errors import note
from adapters.generators import (
    BATCH_TRANSFORM,
    COLLATE,
    DECODE,
    GLOBAL,
    GLOBAL_BATCH,
    OF_COLLATE,
    TRANSFORM,
    Generators,
    Place,
    call_with,
    generator,
    generator_argument,
)
from adapters.ownership import apart, taken
from adapters.seeding import seed, seeded
from adapters.sources import Source
from adapters.structure import private, unflatten
from adapters.user_code import Gate


@dataclass(eq=False, repr=False)
class SourcePlan(Plan):
    """The pure function key -> batch.

    Args:
        source: Source of samples, or of whole batches.
        order: Order of the samples.
        transform: ``transform(sample)`` or ``transform(sample, rng)``.
        batch_transform: ``batch_transform(batch)`` or ``batch_transform(batch, rng)``.
        seed: Seed of the generators passed to the transforms.
        on_error: Handling of a sample that can't be fetched or transformed. ``"raise"``; or
            ``"skip"``, which replaces it by the sample with the next higher number that can be
            (wrapping around); or ``on_error(exception, sample_number)``, which returns a finished
            sample in its place.
        hooked: Hooks change what the functions do between epochs.
        draws: The global generators, ``"random"`` or ``"numpy"``, that the functions draw from.
        collate: The user's function that makes a batch of a list of samples, if there is one.
        lengthened: Added by a source that pads to lengths that vary.
        thread_safe: True if several threads may run the user's code at once; None to decide for
            each part of it.
    """

    source: Source
    order: Order
    transform: Callable[..., Any] | None = None
    batch_transform: Callable[..., Any] | None = None
    seed: int = 0
    on_error: OnError = "raise"
    hooked: bool = False
    draws: frozenset[str] = frozenset()
    collate: Callable[[list[Any]], Any] | None = None
    lengthened: int = 0
    thread_safe: bool | None = None
    _generator_arguments: tuple[str | None, str | None, str | None] = field(init=False)
    _only_reads: bool = field(init=False)
    _own_collate: bool = field(init=False)
    _own_transform: bool = field(init=False)
    _in_place: bool = field(init=False)  # The batch transform may write to its input.
    _locks: bool = field(init=False)
    _batch_function: Callable[..., Any] | None = field(init=False)
    _gate: Gate = field(init=False)
    _batch_gate: Gate = field(init=False)

    def __post_init__(self) -> None:
        named = generator_argument
        self._generator_arguments = (
            named(self.transform),
            named(self.batch_transform),
            named(self.collate),
        )
        plain = self.transform is self.collate is self.batch_transform is None and not self.draws
        self._own_collate = getattr(self.collate, "only_reads", self.collate is None)
        self._own_transform = getattr(self.batch_transform, "keeps_nothing", False)
        self._in_place = hasattr(self.batch_transform, "on_own_batch")
        self._batch_function = getattr(self.batch_transform, "on_own_batch", self.batch_transform)
        own_code = self.source.makes_samples or callable(self.on_error)
        self._only_reads = plain and not (own_code or self.source.whole_batches)
        self._make_gates()

    def _make_gates(self) -> None:
        """Find out which code one thread at a time may run: all of it, or only that of batches."""
        of_samples: list[tuple[str, Any]] = [("source", each) for each in self.source.own_code]
        of_samples.append(("transform", self.transform))
        if callable(self.on_error):
            of_samples.append(("on_error", self.on_error))
        of_batches = [("collate", self.collate), ("batch_transform", self.batch_transform)]
        self._batch_gate = Gate(of_batches, self.thread_safe)
        self._gate = Gate(of_samples, self.thread_safe)
        # The global generators are locked inside, so the gate has to be the outer lock.
        if self._gate or (self.draws and self._batch_gate):
            self._gate = Gate(of_samples + of_batches, self.thread_safe)
        self._locks = not self._only_reads and bool(self._gate or self.draws)

    @property
    def num_batches(self) -> int | None:
        """Number of batches in an epoch; None if it has no end."""
        return self.order.num_batches

    @property
    def batch_size(self) -> int:
        """Number of samples in most batches."""
        return self.order.batch_size

    def expect(self, key: BatchKey, elsewhere: bool) -> None:
        """Start fetching a batch's samples; never blocks."""
        if not self.source.whole_batches:
            self.source.expect(self.order.batch(*key.place), elsewhere)
            if not elsewhere:
                self.order.prefetch(key.place, self.source.will_read, asked=True)

    def rows(self, key: BatchKey) -> int:
        """Number of samples in a batch."""
        return len(self.order.batch(*key.place))

    def shuffled(self, epoch: int, step: int) -> int:
        """Number of the batch at ``step`` when whole batches are permuted."""
        return self.order.shuffled_batch(epoch, step)

    @property
    def own_epochs(self) -> bool:
        """True if batches change between epochs, so that none may be computed early."""
        return self.hooked or self.source.own_epochs

    @property
    def threads(self) -> bool:
        """True if threads may compute several batches at once."""
        return not self.draws

    @property
    def serial(self) -> bool:
        """True if one thread at a time makes samples."""
        return bool(self._gate)

    @property
    def not_thread_safe(self) -> tuple[str, ...]:
        """Arguments whose code only one thread at a time may run."""
        return self._gate.names or self._batch_gate.names

    @property
    def only_decodes(self) -> bool:
        """True if it does little else than decode images, which releases the GIL."""
        decodes = self.source.decodes and self.batch_transform is None
        return decodes and self._known_leaves() is not None

    def enter_epoch(self, epoch: int) -> bool:
        """Tell a source that changes between epochs that this epoch begins."""
        if not self.source.own_epochs:
            return False
        with self._gate:
            return self.source.enter_epoch(epoch)

    @property
    def way(self) -> str:
        """Description of the path from the source to samples or batches, for people."""
        return self.source.way(self.transform is not None or self.collate is not None)

    def renew_locks(self) -> None:
        """Replace all locks, in a forked process."""
        self.source.renew_locks()

    def batch(self, key: BatchKey, allocate: Allocate) -> Assembled:
        """Compute a batch.

        Raises:
            Exception: Any error from the source or a transform, with notes that say where.
            ValueError: Samples that don't fit together.
        """
        if not self.source.whole_batches:
            self.order.prefetch(key.place, self.source.will_read)
        if self._only_reads and self.source.gathers:  # No user code.
            return Assembled(self.source.gather(self.order.batch(*key.place), allocate), 0)
        with Place(self.seed, key.epoch, key.index) as place:
            if not self._locks:
                return Assembled(self._made(key, place, allocate), place.skipped)
            with self._gate, seeded(self.draws):
                return Assembled(self._made(key, place, allocate), place.skipped)

    # The argument of a user's function is taken from a list, so that nothing else refers to it. It
    # is freed as soon as the function allows, and not copied if it is returned.

    def _made(self, key: BatchKey, place: Place, allocate: Allocate) -> Any:
        if self.batch_transform is None:
            return self._collated(key, place, allocate)
        if self._own_transform:
            return self._transformed([self._collated(key, place, allocate)], key, place)
        function = self._transformed
        if self._own_collate or self._in_place:
            held = [self._collated(key, place, np.empty)]
        else:  # The transform may want what collate returns, such as tensors.
            function, held = self._collated_and_transformed, [self._listed(key, place)]
        return taken(function, allocate, held, key, place, lock=self._batch_gate)

    def _collated(self, key: BatchKey, place: Place, allocate: Allocate) -> Any:
        if self.collate is None:
            return self._assembled(key, place, allocate)
        if self._own_collate:
            return self._by_collate([self._listed(key, place)], key, place)
        return taken(
            self._by_collate,
            allocate,
            [self._listed(key, place)],
            key,
            place,
            lock=self._batch_gate,
        )

    def _assembled(self, key: BatchKey, place: Place, allocate: Allocate) -> Any:
        """Make a batch without functions for batches, in memory from ``allocate``."""
        source = self.source
        if source.whole_batches:
            return self._whole(key, allocate)
        numbers = self.order.batch(*key.place)
        if self.transform is None and source.gathers:
            return source.gather(numbers, allocate)
        if (known := self._known_leaves()) is not None:
            columns = [allocate((len(numbers), *shape), dtype) for shape, dtype in known]
            place.skipped = self._filled(key, numbers, columns)
            return unflatten(source.skeleton, columns)
        samples = Samples(self, key, numbers)
        if self.transform is None and source.pads:
            padded = source.padded(list(samples), self.lengthened)
            batch = collate(padded, numbers, allocate, source.remedy)
        else:
            batch = collate(samples, numbers, allocate, source.remedy)
        place.skipped = samples.skipped
        return batch

    def _listed(self, key: BatchKey, place: Place) -> list[Any]:
        """Make the samples for ``collate``, which may modify them unless it declares otherwise."""
        samples = Samples(self, key, self.order.batch(*key.place))
        if self.transform is not None or self.source.makes_samples or callable(self.on_error):
            listed = apart(samples)
        elif self.source.stored and not self._own_collate:
            listed = list(map(private, samples))
        else:
            listed = list(samples)
        place.skipped = samples.skipped
        return listed

    def _by_collate(self, held: list[list[Any]], key: BatchKey, place: Place) -> Any:
        epoch, index = key.epoch, key.index
        function = collate_for(self, self.collate, self.order.batch(*key.place))
        try:
            seed(self.draws, self.seed, epoch, index, GLOBAL_BATCH)
            place.batch(COLLATE)
            if (argument := self._generator_arguments[COLLATE]) is None:
                batch = function(held.pop())
            else:
                rng_of = functools.partial(generator, self.seed, epoch, index, OF_COLLATE)
                batch = call_with(rng_of, argument, function, held.pop())
            if batch is None:
                raise ValueError("collate must return a batch, got None")
        except BaseException as error:
            note(error, f"in collate, batch {index} of epoch {epoch}")
            raise
        return batch

    def _transformed(self, held: list[Any], key: BatchKey, place: Place) -> Any:
        function = self._batch_function
        assert function is not None
        epoch, index = key.epoch, key.index
        try:
            seed(self.draws, self.seed, epoch, index, GLOBAL_BATCH)
            place.batch(BATCH_TRANSFORM)
            if self._generator_arguments[BATCH_TRANSFORM] is None:
                batch = function(held.pop())
            else:
                batch = self._call(BATCH_TRANSFORM, function, held.pop(), epoch, index)
            if batch is None:
                raise ValueError("batch_transform must return a batch, got None")
        except BaseException as error:
            note(error, f"in batch_transform, batch {index} of epoch {epoch}")
            raise
        return batch

    def _collated_and_transformed(self, held: list[list[Any]], key: BatchKey, place: Place) -> Any:
        return self._transformed([self._by_collate(held, key, place)], key, place)

    def longer(self, epoch: int) -> list[Any]:
        """Batches padded further along axes whose lengths may vary between batches.

        TensorFlow's ``fit`` infers these axes from a few batches before it trains on the first one,
        and padded lengths may be equal by chance. A length that is equal within each of three
        batches is fixed if other lengths vary. If none vary, all may: longer samples are rare then.
        Batches that fail are left out.
        """
        if (probing := getattr(self.collate, "probing", None)) is not None:
            probe = Probe()
            other = replace(self, collate=probing(probe))
            batches = other._some(epoch)
            if not probe.varied:
                probe.everywhere = True
                batches = other._some(epoch)
            return batches
        if self.collate is None and self.transform is None and self.source.pads:
            return replace(self, lengthened=1)._some(epoch)
        return []

    def _some(self, epoch: int) -> list[Any]:
        """Compute the first, the middle and the last batch."""
        batches, last = [], len(self.order) - 1
        for index in sorted({0, last // 2, last}):
            with contextlib.suppress(Exception):  # The real batch raises it when it is computed.
                batches.append(self.batch(BatchKey(epoch, index), aligned_empty).batch)
        return batches

    def sample(self, epoch: int, number: int) -> Any:
        """Fetch and transform a single sample."""
        with Place(self.seed, epoch, number) as place:
            place.sample(number)
            return self._transformed_sample(self.fetched(epoch, number), epoch, number)

    def fetched(self, epoch: int, number: int) -> Any:
        """Fetch one sample."""
        if self.source.draws:
            return self.source.sample(number, generator(self.seed, epoch, number, DECODE))
        return self.source.sample(number)

    def _known_leaves(self) -> Any:
        """Shape and dtype of the leaves that the source writes itself; None if it is collated."""
        alone = self.transform is None and self.collate is None
        return self.source.leaves if alone else None

    def _filled(
        self, key: BatchKey, numbers: NDArray[np.int64], rows: Sequence[NDArray[Any]]
    ) -> int:
        """Have the source write these samples; return how many ``on_error`` replaced."""
        self.source.bring(numbers)
        rng_of = Generators(self.seed, key.epoch, DECODE, numbers) if self.source.draws else None
        failures = self.source.fill(numbers, rng_of, rows)
        return self._replaced(key, numbers, rows, failures) if failures else 0

    def _replaced(
        self,
        key: BatchKey,
        numbers: NDArray[np.int64],
        rows: Sequence[NDArray[Any]],
        failures: list[tuple[int, Exception]],
    ) -> int:
        """Replace samples that couldn't be written, by ``on_error``; return how many."""
        source = self.source

        def another(number: int) -> Any:
            one = [np.empty((1, *column.shape[1:]), column.dtype) for column in rows]
            own, epoch = np.array([number]), key.epoch
            rng_of = Generators(self.seed, epoch, DECODE, own) if source.draws else None
            for _, error in source.fill(own, rng_of, one):
                raise error
            return unflatten(source.skeleton, [column[0] for column in one])

        samples = Samples(self, key, numbers)
        # Of several errors, raise the one of the first sample in the batch.
        for row, error in sorted(failures, key=lambda failure: failure[0]):
            sample = samples.replacements.of(error, int(numbers[row]), another)
            put(sample, source.skeleton, rows, row)
        return samples.skipped

    def _transformed_sample(self, sample: Any, epoch: int, number: int) -> Any:
        if self.transform is not None:
            if self.source.stored:
                sample = private(sample)
            sample = self._call(TRANSFORM, self.transform, sample, epoch, number)
        if sample is None:
            made_by = "source" if self.transform is None else "transform"
            raise ValueError(f"{made_by} must return a sample, got None")
        return sample

    def _call(
        self, stream: int, function: Callable[..., Any], item: Any, epoch: int, number: int
    ) -> Any:
        rng_of = functools.partial(generator, self.seed, epoch, number, stream)
        return call_with(rng_of, self._generator_arguments[stream], function, item)

    def _whole(self, key: BatchKey, allocate: Allocate) -> Any:
        epoch, index, origin = key.place
        number = self.order.first(epoch, index, origin)
        try:
            seed(self.draws, self.seed, epoch, index, GLOBAL)
            batch = self.source.batch(number, allocate)
            if batch is None:
                raise ValueError(f"source must return a batch for number {number}, got None")
        except BaseException as error:
            note(error, f"in item {number} of the source, batch {index} of epoch {epoch}")
            raise
        return batch
