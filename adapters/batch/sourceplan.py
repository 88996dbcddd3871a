"""Plan for batches of a source: fetch, transform, collate, into memory that the caller owns.

    source.gather -----------------------------------> batch_transform
    source.fill -------------------------------------> batch_transform
    source.samples --> transform --> collate --------> batch_transform
    source.samples --> transform --> user's collate --> batch_transform
    source.batch ------------------------------------> batch_transform

The source's properties decide how a batch is assembled. ``collate`` and ``batch_transform`` are
stages that follow. Their functions get the only reference to their argument: it is passed in a list
and taken out for the call, so that it is freed as soon as the function allows, and not copied if it
is returned.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.alignment import aligned_empty
from adapters.batch.collate import Probe, collate
from adapters.batch.order import Order
from adapters.batch.plan import Allocate, Assembled, BatchKey, Plan
from adapters.batch.replacement import OnError, Replacements, put
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
from adapters.seeding import draws_noted, seed, seed_with, seeded, seeds
from adapters.sources import SequenceSource, Source
from adapters.structure import private, unflatten

# Batches in which code that may draw from a global generator has to do so once.
_PROBES = 2


class _Stage(NamedTuple):
    """A user's function of a whole batch: its argument's name, and how it is called."""

    name: str
    function: Callable[..., Any]
    argument: str | None
    """Result of ``generator_argument``."""
    run: int
    """Its run in ``Place.batch``."""
    stream: int
    """Stream of its generator."""


@dataclass(eq=False, repr=False)
class SourcePlan(Plan):
    """The pure function key -> batch; most arguments are those of ``SafeSequence``."""

    source: Source
    order: Order
    transform: Callable[..., Any] | None = None
    batch_transform: Callable[..., Any] | None = None
    seed: int = 0
    on_error: OnError = "raise"
    hooked: bool = False
    """True if hooks change what the functions do between epochs."""
    draws: frozenset[str] = frozenset()
    guessed: frozenset[str] = frozenset()
    """Other global generators that the code may draw from; the first batches show it."""
    collate: Callable[[list[Any]], Any] | None = None
    lengthened: int = 0
    """Added by a source that pads to lengths that vary."""
    thread_safe: bool | None = None
    _argument: str | None = field(init=False)  # How ``transform`` takes its generator.
    _runs_users_code: bool = field(init=False)  # For samples.
    _only_reads: bool = field(init=False)
    _steps: list[tuple[list[_Stage], bool]] = field(init=False)
    """Stages that run together, and whether only this plan refers to what they return."""
    _copies: int = field(init=False)  # Steps whose result may have to be copied.
    _probes: int = field(init=False, default=0)  # Batches that were watched for draws.

    def __post_init__(self) -> None:
        made = self.transform is not None or self.source.makes_samples
        self._runs_users_code = made or callable(self.on_error)
        plain = self.collate is self.batch_transform is None and not self.draws
        self._only_reads = plain and not (self._runs_users_code or self.source.whole_batches)
        self._argument = generator_argument(self.transform)
        self._make_steps()
        self._make_gates(
            [*(("source", each) for each in self.source.users_code), ("transform", self.transform)],
            [("collate", self.collate), ("batch_transform", self.batch_transform)],
        )

    def _make_steps(self) -> None:
        self._steps = []
        if self.collate is not None:
            argument = generator_argument(self.collate)
            stage = _Stage("collate", self.collate, argument, COLLATE, OF_COLLATE)
            self._steps.append(([stage], self._own_collate))
        if self.batch_transform is not None:
            function = getattr(self.batch_transform, "on_own_batch", self.batch_transform)
            argument = generator_argument(self.batch_transform)
            stage = _Stage("batch_transform", function, argument, BATCH_TRANSFORM, BATCH_TRANSFORM)
            if self._own_collate or function is not self.batch_transform:
                own = getattr(self.batch_transform, "keeps_nothing", False)
                self._steps.append(([stage], own))
            else:  # The transform may want what collate returns, such as tensors.
                self._steps[0][0].append(stage)
        self._copies = sum(not own for _, own in self._steps)

    @property
    def _own_collate(self) -> bool:
        return bool(getattr(self.collate, "only_reads", self.collate is None))

    def prefetch(self, key: BatchKey, elsewhere: bool) -> None:
        """Start fetching a batch's samples; never blocks."""
        if not self.source.whole_batches:
            self.source.prefetch(self.samples(key), elsewhere)
            if not elsewhere:
                self.order.prefetch(key.order_arguments, self.source.prefetch_hint, asked=True)

    def shuffled(self, epoch: int, step: int) -> int:
        """Number of the batch at ``step`` when whole batches are permuted."""
        return self.order.shuffled_batch(epoch, step)

    @property
    def changes_between_epochs(self) -> bool:
        """True if batches change between epochs, so that none may be computed early."""
        return self.hooked or self.source.changes_between_epochs

    @property
    def only_decodes(self) -> bool:
        """True if it does little else than decode images, which releases the GIL."""
        decodes = self.source.decodes and self.batch_transform is None
        return decodes and self._known_leaves() is not None

    def enter_epoch(self, epoch: int) -> bool:
        """Tell a source that changes between epochs that this epoch begins."""
        source = self.source
        if not (isinstance(source, SequenceSource) and source.changes_between_epochs):
            return False
        with self._gate:
            return source.enter_epoch(epoch)

    def resized(self) -> Order:
        """Take the present length of a source of whole batches; return the order of that length."""
        assert isinstance(self.source, SequenceSource)
        with self._gate:
            size = self.source.take_length()
        return self.order if size == self.order.size else replace(self.order, size=size)

    def check_length(self) -> bool:
        """Have a source that may grow compare its length with that of an epoch."""
        if not self.source.may_grow:
            return False
        with self._gate:
            return self.source.check_length()

    def renew_locks(self) -> None:
        """Replace all locks, in a forked process."""
        if isinstance(self.source, SequenceSource):
            self.source.renew_locks()

    def batch(self, key: BatchKey, allocate: Allocate) -> Assembled:
        """Compute a batch."""
        if not self.source.whole_batches:
            self.order.prefetch(key.order_arguments, self.source.prefetch_hint)
        if self._only_reads and self.source.gathers:  # No user code.
            batch = self._at_once(key, self.samples(key), allocate)
            if batch is not None:
                return Assembled(batch, 0)
        with Place(self.seed, key.epoch, key.index) as place:
            if self.guessed:
                return self._probed(key, place, allocate)
            if not (self._gate or self.draws):  # Saves 1 us.
                return Assembled(self._made(key, place, allocate), place.skipped)
            with self._gate, seeded(self.draws):
                return Assembled(self._made(key, place, allocate), place.skipped)

    def _probed(self, key: BatchKey, place: Place, allocate: Allocate) -> Assembled:
        """Compute a batch, and see whether its code draws from the guessed global generators."""
        with self._gate, seeded(self.draws | self.guessed):
            known, guessed = self.draws, self.guessed
            self.draws = known | guessed
            try:
                with draws_noted() as drawn:
                    assembled = Assembled(self._made(key, place, allocate), place.skipped)
            finally:
                self.draws = known
            self._probes += 1
            self.draws = known | (guessed & drawn)
            if guessed & drawn or self._probes == _PROBES:
                self.guessed = frozenset()
            return assembled

    def _made(self, key: BatchKey, place: Place, allocate: Allocate) -> Any:
        """Assemble a batch, and run the stages; the last copy is made in ``allocate``'s memory."""
        left = self._copies
        if self.collate is None:
            assembled = self._assembled(key, place, np.empty if left else allocate)
            if not self._steps:
                return assembled
            held = [assembled]
            del assembled
        else:
            held = [self._listed(key, place)]
        for stages, own in self._steps:
            if own:
                held = [self._run(stages, held, key, place)]
            else:
                left -= 1
                memory: Allocate = np.empty if left else allocate
                held = [taken(self._run, memory, stages, held, key, place, lock=self._batch_gate)]
        return held.pop()

    def _run(self, stages: list[_Stage], held: list[Any], key: BatchKey, place: Place) -> Any:
        """Run functions of a batch one after the other; the first one's argument is in ``held``."""
        epoch, index = key.epoch, key.index
        for name, function, argument, run, stream in stages:
            try:
                if run == COLLATE:
                    function = self._for_samples(function, key, self._alone)
                seed(self.draws, self.seed, epoch, index, GLOBAL_BATCH)
                place.batch(run)
                if argument is None:
                    batch = function(held.pop())
                else:
                    rng_of = functools.partial(generator, self.seed, epoch, index, stream)
                    batch = call_with(rng_of, argument, function, held.pop())
                if batch is None or callable(batch) or hasattr(batch, "__next__"):
                    raise ValueError(f"{name} must return a batch, got {batch!r:.80}")
            except BaseException as error:
                note(error, f"in {name}, batch {index} of epoch {epoch}")
                raise
            held.append(batch)
            del batch
        return held.pop()

    def _alone(self, number: int) -> Any:
        """Make a sample as in epoch 0."""
        seed(self.draws, self.seed, 0, number, GLOBAL)
        return self.sample(0, number)

    # --- samples ---

    def _assembled(self, key: BatchKey, place: Place, allocate: Allocate) -> Any:
        """Make a batch without functions for batches, in memory from ``allocate``."""
        source = self.source
        if isinstance(source, SequenceSource):
            return self._whole(source, key, allocate)
        numbers = self.samples(key)
        if self.transform is None and source.gathers:
            batch = self._at_once(key, numbers, allocate)
            if batch is not None:
                return batch
        elif (known := self._known_leaves()) is not None:
            columns = [allocate((len(numbers), *shape), dtype) for shape, dtype in known]
            self._filled(key, numbers, place, columns)
            return unflatten(source.treedef, columns)
        samples: Any = self._samples(key, numbers, place)
        if self.transform is None and source.pads:
            samples = source.padded(list(samples), self.lengthened)
        return collate(samples, numbers, allocate, source.remedy)

    def _listed(self, key: BatchKey, place: Place) -> list[Any]:
        """Make the samples for ``collate``, which may modify them unless it declares otherwise."""
        samples = self._samples(key, self.samples(key), place)
        if self._runs_users_code:
            return apart(samples)
        stored = self.source.stored and not self._own_collate
        return list(map(private, samples) if stored else samples)

    def _replacements(
        self, key: BatchKey, place: Place, sample: Callable[[int], Any]
    ) -> Replacements:
        size, visits = len(self.source), self.order.visits
        return Replacements(self.on_error, size, key, place, sample, visits)

    def _samples(self, key: BatchKey, numbers: NDArray[np.int64], place: Place) -> Iterator[Any]:
        """Fetch and transform samples one after another, with ``on_error``."""
        epoch, transform = key.epoch, self.transform
        replacements = self._replacements(key, place, functools.partial(self.sample, epoch))
        at_once = self._at_once(key, numbers)
        # Samples that are there draw nothing more. A seed takes 8 us.
        draws = frozenset() if at_once is not None and transform is None else self.draws
        drawn = seeds(self.seed, epoch, numbers, GLOBAL) if draws else []
        rng, stored = self._argument, self.source.stored
        fetch = functools.partial(self.fetched, epoch) if self.source.draws else self.source.sample
        users_code = self._runs_users_code
        for row, number in enumerate(numbers.tolist()):
            try:
                if draws:
                    seed_with(draws, drawn[row])
                if users_code:
                    place.sample(number)
                sample = fetch(number) if at_once is None else at_once[row]
                if transform is None or rng:
                    if transform is not None or sample is None:
                        sample = self._transformed(sample, epoch, number)
                else:  # Saves 5 us for 64 samples.
                    sample = transform(private(sample) if stored else sample)
                    if sample is None:
                        raise ValueError("transform must return a sample, got None")
            except BaseException as raised:
                sample = replacements.of(raised, number)
            yield sample

    def _at_once(
        self, key: BatchKey, numbers: NDArray[np.int64], allocate: Allocate | None = None
    ) -> Any:
        """Fetch all samples at once, as a batch in memory from ``allocate`` if that is given.

        Return None if they must be fetched one at a time.
        """
        try:
            if allocate is not None:
                return self.source.gather(numbers, allocate)
            self.source.fetch(numbers)
            seed(self.draws, self.seed, key.epoch, key.index, GLOBAL_BATCH)
            return self.source.samples(numbers)
        except BaseException as error:
            if self.on_error != "raise" and isinstance(error, Exception):
                return None
            listed = ", ".join(map(str, numbers[:8])) + ", ..." * (len(numbers) > 8)
            note(error, f"in samples {listed}, batch {key.index} of epoch {key.epoch}")
            raise

    def sample(self, epoch: int, number: int) -> Any:
        """Fetch and transform a single sample."""
        with Place(self.seed, epoch, number) as place:
            place.sample(number)
            return self._transformed(self.fetched(epoch, number), epoch, number)

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
        self, key: BatchKey, numbers: NDArray[np.int64], place: Place, rows: Sequence[NDArray[Any]]
    ) -> None:
        """Have the source write these samples."""
        source = self.source

        def fill(numbers: NDArray[np.int64], rows: Sequence[NDArray[Any]]) -> Any:
            rng_of = Generators(self.seed, key.epoch, DECODE, numbers) if source.draws else None
            return source.fill(numbers, rng_of, rows)

        def another(number: int) -> Any:
            one = [np.empty((1, *column.shape[1:]), column.dtype) for column in rows]
            for _, error in fill(np.array([number]), one):
                raise error
            return unflatten(source.treedef, [column[0] for column in one])

        source.fetch(numbers)
        failures = fill(numbers, rows)
        if not failures:
            return
        replacements = self._replacements(key, place, another)
        # Of several errors, raise the one of the first sample in the batch.
        for row, error in sorted(failures, key=lambda failure: failure[0]):
            put(replacements.of(error, int(numbers[row])), source.treedef, rows, row)

    def _transformed(self, sample: Any, epoch: int, number: int) -> Any:
        if self.transform is not None:
            if self.source.stored:
                sample = private(sample)
            rng_of = functools.partial(generator, self.seed, epoch, number, TRANSFORM)
            sample = call_with(rng_of, self._argument, self.transform, sample)
        if sample is None:
            made_by = "source" if self.transform is None else "transform"
            raise ValueError(f"{made_by} must return a sample, got None")
        return sample

    def _whole(self, source: SequenceSource, key: BatchKey, allocate: Allocate) -> Any:
        epoch, index, number = key.epoch, key.index, int(self.samples(key)[0])
        try:
            seed(self.draws, self.seed, epoch, index, GLOBAL)
            batch = source.batch(number, allocate)
            if batch is None:
                raise ValueError(f"source must return a batch for number {number}, got None")
        except BaseException as error:
            note(error, f"in item {number} of the source, batch {index} of epoch {epoch}")
            raise
        return batch

    # --- lengths that vary ---

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
