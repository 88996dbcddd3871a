"""Plan of a Gluon loader: fetch, transform and batchify a batch by MXNet's rules.

Like every ``Plan``, a ``GluonPlan`` is a function of a batch's key alone. In the trainer's process,
a batch may hold NDArrays. In a worker process, it is written to the slot as NumPy arrays. In both
cases, it is a flat tuple of arrays and a ``Skeleton``, which the loader converts for the user.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import mxnet as mx
import numpy as np
from mxnet.util import is_np_array, is_np_shape, np_array, set_np_shape

from adapters.alignment import aligned_empty
from adapters.batch.key import BatchKey
from adapters.batch.order import DrawnOrder, Order
from adapters.batch.plan import Allocate, Assembled, Plan
from adapters.batch.replacement import OnError, Replacements
from adapters.errors import note
from adapters.generators import (
    BATCH_TRANSFORM,
    COLLATE,
    OF_COLLATE,
    Place,
    call_with,
    generator,
    generator_argument,
    run_for_batch,
)
from adapters.gluon.batchify import Skeleton, as_active, batchify_default, is_nd, packed
from adapters.gluon.ndarrays import map_arrays
from adapters.gluon.pipeline import Pipeline, name_of
from adapters.gluon.randomness import Seeding
from adapters.gluon.samples import Runner, State, compute, samples_of, split
from adapters.gluon.stages import call
from adapters.user_code import Gate

_Made = tuple[list[Any], Skeleton, int]
_Result = TypeVar("_Result")


@dataclass
class GluonPlan(Plan):
    """Pure function from key to batch for a Gluon data set.

    Args:
        order: Samples of each batch.
        pipeline: Pipeline of the samples.
        data: The loader's data set, for its length.
        batchify: User's function from a list of samples to a batch; None for MXNet's.
        used: Global random generators that user code may use.
        semantics: ``(is_np_shape(), is_np_array())`` in the thread of the loader.
        live: True if the data set may change between epochs, so that none may start early.
        seed: Seed of all random numbers.
        on_error: Handling of a sample that can't be made, see ``gluon_loader``.
        batch_transform: ``batch_transform(batch)`` or ``batch_transform(batch, rng)``.
        own_order: True if a drawn order comes from a sampler of this package.
        thread_safe: True if several threads may run user code at once; None to follow what each
            part declares.
    """

    order: Order | DrawnOrder
    pipeline: Pipeline
    data: Any = ()
    batchify: Callable[[list[Any]], Any] | None = None
    used: frozenset[str] = frozenset()
    semantics: tuple[bool, bool] = (False, False)
    live: bool = False
    seed: int = 0
    on_error: OnError = "raise"
    batch_transform: Callable[..., Any] | None = None
    own_order: bool = False
    thread_safe: bool | None = None

    def __post_init__(self) -> None:
        self._argument = generator_argument(self.batch_transform)
        self._batchify_argument = generator_argument(self.batchify)
        self._consumers: set[int] = set()
        self._remote = False
        self._inline: Any = threading.Lock()
        self._size = len(self.data)
        drawn = isinstance(self.order, DrawnOrder)
        self._runner = Runner(self.pipeline, self.seed, drawn, self.own_order)
        of_samples = [("dataset", each) for each in self.pipeline.own_code]
        if callable(self.on_error):
            of_samples.append(("on_error", self.on_error))
        of_batches = [("batchify_fn", self.batchify), ("batch_transform", self.batch_transform)]
        self._gate = Gate(of_samples, self.thread_safe)
        self._batch_gate = Gate(of_batches, self.thread_safe)
        if self._gate or (self.used and self._batch_gate):
            self._gate = Gate(of_samples + of_batches, self.thread_safe)

    def __getstate__(self) -> dict[str, Any]:
        """State for a worker process, with the pipeline but without the data set."""
        pipeline = self.pipeline
        if pipeline.columns is not None:
            pipeline = Pipeline(
                None, pipeline.columns, pipeline.single, pipeline.indices, pipeline.ops
            )
        return {
            **self.__dict__,
            "data": None,
            "pipeline": pipeline,
            "_runner": self._runner.with_pipeline(pipeline),
            "_inline": contextlib.nullcontext(),
            "_consumers": set(),
            "_remote": True,
        }

    @property
    def num_batches(self) -> int | None:
        """Number of batches in an epoch; None if a sampler draws them."""
        return None if isinstance(self.order, DrawnOrder) else self.order.num_batches

    @property
    def batch_size(self) -> int:
        """Number of samples in a full batch."""
        return self.order.batch_size

    def rows(self, key: BatchKey) -> int:
        """Number of samples in a batch."""
        return len(self.samples(key))

    def samples(self, key: BatchKey) -> Any:
        """Names of the samples of a batch: numbers, or whatever a sampler has drawn."""
        if key.samples is not None:
            return key.samples
        assert isinstance(self.order, Order)
        return self.order.batch(*key.place)

    def explanation(self) -> Iterator[str]:
        """Yield a line for each stage, except the order and the workers."""
        yield from self.pipeline.explanation()
        if self.batchify is not None:
            yield f"batchify_fn {name_of(self.batchify)}: gets a list of samples, one by one"
        if self.batch_transform is not None:
            yield f"batch_transform {name_of(self.batch_transform)}: a batch at a time"
        if self.on_error == "skip":
            yield "on_error: the next sample that works takes the place of one that doesn't"
        elif self.on_error != "raise":
            yield f"on_error: {name_of(self.on_error)} gives what takes a sample's place"
        if self.used:
            used = ", ".join(sorted(self.used))
            yield f"drawn from the global generators of {used}: seeded, except on threads"

    def _prefetch(self, key: BatchKey, asked: bool = False) -> None:
        """Give the records a prefetch hint for later batches, in an order in blocks."""
        records = self.pipeline.records
        if (
            records is None
            or self.pipeline.indices is not None
            or isinstance(self.order, DrawnOrder)
        ):
            return
        self.order.prefetch(key.place, records.will_read, asked)

    def expect(self, key: BatchKey, elsewhere: bool) -> None:
        """Make a source of records start to fetch a batch's samples."""
        records = self.pipeline.records
        if records is not None and records is self.pipeline.base and not self.live:
            numbers = self.pipeline.base_numbers(self.samples(key))
            if isinstance(numbers, np.ndarray):
                records.expect(numbers, elsewhere)
            if not elsewhere:
                self._prefetch(key, asked=True)

    @property
    def own_epochs(self) -> bool:
        """True if an epoch must not start before the previous one has ended."""
        return self.live

    @property
    def threads(self) -> bool:
        """True if batches are the same on threads, which share the global generators."""
        return not self.used

    @property
    def serial(self) -> bool:
        """True if only one thread at a time may make samples."""
        return bool(self._gate)

    @property
    def not_thread_safe(self) -> tuple[str, ...]:
        """Arguments whose code only one thread at a time may run."""
        return self._gate.names or self._batch_gate.names

    @property
    def own_functions(self) -> bool:
        """True if there are user functions, which may call MXNet for each sample."""
        return bool(self.pipeline.python_code) or not (self.batchify is None or self._collates)

    @property
    def only_decodes(self) -> bool:
        """True if the work is mainly image decoding, which releases the interpreter lock."""
        records = self.pipeline.records
        decodes = records is not None and records.decodes and records.leaves is not None
        return decodes and self._runner.empty and self._batches_itself

    @property
    def _batches_itself(self) -> bool:
        """True if batches are made by MXNet's rules only, without user functions."""
        return self.batchify is None and self.batch_transform is None

    @property
    def _collates(self) -> bool:
        """True if ``batchify`` is from this package. Its NumPy arrays become NDArrays."""
        return bool(getattr(self.batchify, "only_reads", False))

    @property
    def _computes_with_numpy(self) -> bool:
        """True if the last function is from this package. Its NumPy arrays become NDArrays."""
        if self.batch_transform is None:
            return self._collates
        return hasattr(self.batch_transform, "on_own_batch")

    def begin_pass(self) -> None:
        """Update the length of the data set and the semantics, and wait for its arrays."""
        self.semantics = (is_np_shape(), is_np_array())
        self._size = len(self.data)
        for column in self.pipeline.columns or ():
            if column.owner is not None:
                column.owner.wait_to_read()

    def consumed_here(self) -> None:
        """Let batches that this thread computes seed the global generators."""
        self._consumers.add(threading.get_ident())

    def no_longer_consumed_here(self) -> None:
        """Undo ``consumed_here`` after a pass, as another thread may get this thread's number."""
        self._consumers.discard(threading.get_ident())

    def batch(self, key: BatchKey, allocate: Allocate) -> Assembled:
        """Compute a batch: ``(*arrays, Skeleton)``.

        Raises:
            Exception: The error of the data set, a transform or batchify, with notes that name the
                sample and the batch.
        """
        samples = self.samples(key)
        self._prefetch(key)
        try:
            consumers = threading.get_ident() in self._consumers
            if not consumers and self.semantics != (is_np_shape(), is_np_array()):
                # This is a worker's thread. `set_np` refuses np arrays without np shapes, and np
                # shapes can't be turned off while np arrays are on.
                shape, array = self.semantics
                np_array(False).__enter__()
                set_np_shape(shape)
                np_array(array).__enter__()
            with self._gate:
                leaves, skeleton, skipped = self._batch(key, samples, allocate, consumers)
        except BaseException as error:
            note(error, f"in batch {key.index} of epoch {key.epoch}")
            raise
        return Assembled((*leaves, skeleton), skipped)

    def wait_for(self, assembled: Assembled) -> None:
        """Wait for MXNet's engine, which computes asynchronously."""
        map_arrays(lambda array: array.wait_to_read(), assembled.batch[:-1], lists=True)

    def _batch(
        self, key: BatchKey, samples: Sequence[Any], allocate: Allocate, consumers: bool
    ) -> _Made:
        batchify, told = self.batchify, getattr(self.batchify, "for_samples", None)
        if told is not None:
            batchify = told(samples, functools.partial(self._alone, samples, consumers))
        made = functools.partial(self._made, key, samples, allocate, batchify)
        with Place(self.seed, key.epoch, key.index):
            return self._seeded(key, consumers, made)

    def _seeded(
        self, key: BatchKey, consumers: bool, make: Callable[[Seeding | None], _Result]
    ) -> _Result:
        """Call ``make`` with the process's generators seeded for a batch, if they are used."""
        if not self.used or not (self._remote or consumers):
            return make(None)
        seeding = Seeding(self.used, self.seed, restore=not self._remote)
        with self._inline, seeding.batch(key.epoch, key.index):
            return make(seeding)

    def _alone(self, names: Any, consumers: bool, name: Any) -> Any:
        """Make a single sample, also of another batch, as in epoch 0."""
        key = BatchKey(0, 0)
        one: Any = np.array([name]) if isinstance(names, np.ndarray) else [name]

        def made(seeding: Seeding | None) -> State:
            return self._runner.made(key, one, aligned_empty, seeding, self.semantics[1])

        with Place(self.seed, 0, 0):
            state = self._seeded(key, consumers, made)
        (sample,) = samples_of(state)
        return sample

    def _made(
        self,
        key: BatchKey,
        names: Sequence[Any],
        allocate: Allocate,
        batchify: Callable[[list[Any]], Any] | None,
        seeding: Seeding | None,
    ) -> _Made:
        # If user functions make the batch, these arrays are not its memory yet.
        memory = allocate if self._batches_itself else aligned_empty
        state, skipped = self._samples(key, names, memory, seeding)
        try:
            if self._batches_itself:
                return *self._batchified(state, names, self._remote, memory), skipped
            if seeding is not None:
                seeding.reseed(key.epoch, key.index)
            make = functools.partial(self._of_functions, batchify, state, key, names)
            return *self._packed(make), skipped
        except Exception as error:
            if skipped:
                note(
                    error, f"on_error gave {skipped} of its samples, which must be like the others"
                )
            raise

    # --- samples ---

    def _samples(
        self,
        key: BatchKey,
        names: Sequence[Any],
        allocate: Allocate,
        seeding: Seeding | None,
    ) -> tuple[State, int]:
        """Make the samples of a batch, and count those that ``on_error`` has replaced."""

        def made(names: Sequence[Any], memory: Allocate, first: int = 0) -> State:
            numpy_semantics = self.semantics[1]
            return self._runner.made(key, names, memory, seeding, numpy_semantics, first)

        if self.on_error == "raise":
            return made(names, allocate), 0

        def computed(names: Sequence[Any], memory: Allocate, first: int = 0) -> State:
            state = made(names, memory, first)
            compute(state)
            return state

        with contextlib.suppress(Exception):
            return computed(names, allocate), 0
        # Make the samples one by one to find those that fail.
        return self._replaced(computed, names, f"batch {key.index} of epoch {key.epoch}")

    def _replaced(
        self, made: Callable[..., State], names: Any, where: str
    ) -> tuple[list[Any], int]:
        """Make samples one by one, with replacements for those that fail."""
        several = np.array if isinstance(names, np.ndarray) else list

        def sample(name: Any) -> Any:
            state = made(several([name]), np.empty, len(samples))
            (one,) = samples_of(state)
            return one

        samples: list[Any] = []
        replacements = Replacements(self.on_error, self._size, where, sample)
        for name in names.tolist() if isinstance(names, np.ndarray) else names:
            try:
                samples.append(sample(name))
            except BaseException as error:
                named = not isinstance(name, (int, np.integer))
                if self.on_error == "skip" and named and isinstance(error, Exception):
                    raise ValueError(
                        'on_error="skip" takes the sample with the next higher number, and '
                        f"batch_sampler names this one {name!r}: give a function as on_error"
                    ) from error
                samples.append(replacements.of(error, name))
        return samples, replacements.count

    # --- from samples to a batch ---

    def _batchified(
        self, state: State, names: Sequence[Any], remote: bool, allocate: Allocate
    ) -> tuple[list[Any], Skeleton]:
        """Batchify samples by MXNet's rules."""
        if isinstance(state, list):
            state = split(state, names)
        columns = [each if isinstance(each, list) else each.array for each in state.columns]
        records, remedy = self.pipeline.records, None
        if records is not None and list in map(type, columns):
            remedy = records.remedy
        return batchify_default(columns, state.single, remote, allocate, names, remedy)

    def _of_functions(
        self,
        batchify: Callable[[list[Any]], Any] | None,
        state: State,
        key: BatchKey,
        names: Sequence[Any],
    ) -> Any:
        """Make a batch with ``batchify`` and ``batch_transform``."""
        function = self.batch_transform
        own = getattr(function, "on_own_batch", None)  # This package's functions use NumPy.
        if batchify is not None:
            run_for_batch(COLLATE)
            rng_of = functools.partial(generator, self.seed, key.epoch, key.index, OF_COLLATE)
            batch = call_with(rng_of, self._batchify_argument, batchify, samples_of(state))
            if own is not None:
                batch = map_arrays(lambda array: array.asnumpy(), batch, lists=False)
            elif function is not None and self._collates:
                batch = as_active(batch, self.semantics[1])
        else:
            leaves, skeleton = self._batchified(state, names, False, aligned_empty)
            if own is not None:
                function = own
                batch = skeleton.of([each.asnumpy() if is_nd(each) else each for each in leaves])
            else:
                batch = skeleton.built(leaves, is_np_array())
            del leaves  # Only the batch may refer to its arrays.
        if function is None:
            return batch
        if isinstance(function, mx.gluon.Block):
            function = functools.partial(call, function)
        rng_of = functools.partial(generator, self.seed, key.epoch, key.index, BATCH_TRANSFORM)
        held = [batch]
        del batch
        run_for_batch(BATCH_TRANSFORM)
        try:
            transformed = call_with(rng_of, self._argument, function, held.pop())
            if transformed is None:
                raise ValueError("batch_transform must return a batch, got None")
        except BaseException as error:
            note(error, "in batch_transform")
            raise
        return transformed

    def _packed(self, make: Callable[[], Any]) -> tuple[list[Any], Skeleton]:
        """Flatten the result of ``make``, in memory that the user can't write to."""
        numpy_as = "active" if self._computes_with_numpy else "numpy"
        with self._batch_gate:
            return packed(make, self._remote, numpy_as)
