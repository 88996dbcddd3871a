"""One batch of a Gluon data set: fetch, transform, batchify, with MXNet's own rules.

What a ``GluonPlan`` gives for a batch's key depends on nothing else, as every ``Plan`` has it.
In the trainer's process a batch may hold NDArrays; in a worker process it is written into the slot
as NumPy arrays. Either way it is a flat tuple of arrays and a ``Skeleton``, from which the loader
makes what the user sees.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
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
    Place,
    call_with,
    generator,
    generator_argument,
    run_for_batch,
)
from adapters.gluon.batchify import Skeleton, as_active, batchify_default, is_nd, packed
from adapters.gluon.blocks import call
from adapters.gluon.ndarrays import map_arrays
from adapters.gluon.pipeline import Pipeline
from adapters.gluon.randomness import Seeding
from adapters.gluon.samples import Runner, State, compute, samples_of, split
from adapters.user_code import Gate

_Made = tuple[list[Any], Skeleton, int]
_Result = TypeVar("_Result")


@dataclass
class GluonPlan(Plan):
    """The pure function key -> batch of a Gluon data set.

    Args:
        order: Which samples make which batch.
        pipeline: How samples come about.
        data: The data set that the loader was made for, which has a length.
        batchify: The user's own function from a list of samples to a batch; None for MXNet's.
        used: The global random generators that the user's code may draw from.
        semantics: ``(is_np_shape(), is_np_array())`` where the loader was made.
        live: Whether the data set may change between epochs, so that none may be begun early.
        seed: Of all that is random.
        on_error: What takes the place of a sample that can't be made.
        batch_transform: ``batch_transform(batch)`` or ``batch_transform(batch, rng)``.
        own_order: Where samples are drawn, whether a sampler of ours does it.
        thread_safe: Whether several threads may run the user's code at once; None: what each part
            of it says.
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
        """For a worker process: the pipeline is all that it needs."""
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
        """Batches in an epoch; None where a sampler draws them."""
        return None if isinstance(self.order, DrawnOrder) else self.order.num_batches

    @property
    def batch_size(self) -> int:
        """Samples in most batches."""
        return self.order.batch_size

    def rows(self, key: BatchKey) -> int:
        """Samples in a batch."""
        return len(self.samples(key))

    def samples(self, key: BatchKey) -> Any:
        """What the samples of a batch are named by: numbers, or what a sampler has drawn."""
        if key.samples is not None:
            return key.samples
        assert isinstance(self.order, Order)
        return self.order.batch(*key.place)

    def _foretell(self, key: BatchKey, asked: bool = False) -> None:
        """Tell the records what comes some time after this batch, in an order in blocks."""
        records = self.pipeline.records
        if (
            records is None
            or self.pipeline.indices is not None
            or isinstance(self.order, DrawnOrder)
        ):
            return
        self.order.foretell(key.place, records.will_read, asked)

    def expect(self, key: BatchKey, elsewhere: bool) -> None:
        """Have a source of records begin to fetch a batch's samples."""
        records = self.pipeline.records
        if records is not None and records is self.pipeline.base and not self.live:
            numbers = self.pipeline.base_numbers(self.samples(key))
            if isinstance(numbers, np.ndarray):
                records.expect(numbers, elsewhere)
            if not elsewhere:
                self._foretell(key, asked=True)

    @property
    def own_epochs(self) -> bool:
        """Whether an epoch may not be begun before the one before it has ended."""
        return self.live

    @property
    def threads(self) -> bool:
        """Whether the batches are the same on threads, which share the global generators."""
        return not self.used

    @property
    def serial(self) -> bool:
        """Whether one thread at a time makes samples."""
        return bool(self._gate)

    @property
    def not_thread_safe(self) -> tuple[str, ...]:
        """The arguments whose code one thread at a time may run."""
        return self._gate.names or self._batch_gate.names

    @property
    def own_functions(self) -> bool:
        """Whether there are functions of the user's own, which may call MXNet for each sample."""
        return bool(self.pipeline.python_code) or not (self.batchify is None or self._collates)

    @property
    def only_decodes(self) -> bool:
        """Whether it decodes images and little else, which takes no interpreter lock."""
        records = self.pipeline.records
        decodes = records is not None and records.decodes and records.leaves is not None
        return decodes and self._runner.empty and self._batches_itself

    @property
    def _batches_itself(self) -> bool:
        """Whether a batch is made by MXNet's rules and by nothing else."""
        return self.batchify is None and self.batch_transform is None

    @property
    def _collates(self) -> bool:
        """Whether ``batchify`` is a collate of this package, whose NumPy arrays become NDArrays."""
        return bool(getattr(self.batchify, "only_reads", False))

    @property
    def _computes_with_numpy(self) -> bool:
        """Whether the last function is of this package, and its arrays become NDArrays."""
        if self.batch_transform is None:
            return self._collates
        return hasattr(self.batch_transform, "on_own_batch")

    def begin_pass(self) -> None:
        """Take the data set, its arrays and the semantics as they are now."""
        self.semantics = (is_np_shape(), is_np_array())
        self._size = len(self.data)
        for column in self.pipeline.columns or ():
            if column.owner is not None:
                column.owner.wait_to_read()

    def consumed_here(self) -> None:
        """Batches that this thread computes may seed the global generators."""
        self._consumers.add(threading.get_ident())

    def no_longer_consumed_here(self) -> None:
        """A pass by this thread is over; the thread's number may become another's."""
        self._consumers.discard(threading.get_ident())

    def batch(self, key: BatchKey, allocate: Allocate) -> Assembled:
        """Compute a batch: ``(*arrays, Skeleton)``.

        Raises:
            Exception: Whatever the data set, a transform or batchify raises, with notes that name
                the sample and the batch.
        """
        samples = self.samples(key)
        self._foretell(key)
        try:
            consumers = threading.get_ident() in self._consumers
            if not consumers and self.semantics != (is_np_shape(), is_np_array()):
                # Of this thread, which is a worker's. `set_np` refuses arrays without shapes, and
                # shapes can't be given up while there are arrays.
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
        """Wait for MXNet's engine, which computes after its functions have returned."""
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
        """What is made with the process's generators seeded for a batch."""
        if not self.used or not (self._remote or consumers):
            return make(None)
        seeding = Seeding(self.used, self.seed, restore=not self._remote)
        with self._inline, seeding.batch(key.epoch, key.index):
            return make(seeding)

    def _alone(self, names: Any, consumers: bool, name: Any) -> Any:
        """A sample that may be of another batch, as in epoch 0."""
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
        # What somebody else makes the batch of is not the batch yet.
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
        """Those of a batch, and how many ``on_error`` has replaced."""

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
        # Whichever failed: each by itself, as it is then seen.
        return self._replaced(computed, names, f"batch {key.index} of epoch {key.epoch}")

    def _replaced(
        self, made: Callable[..., State], names: Any, where: str
    ) -> tuple[list[Any], int]:
        """Samples one by one, others in the places of those that fail."""
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
        """By MXNet's rules."""
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
        """What the user's own ``batchify`` and ``batch_transform`` make of samples."""
        function = self.batch_transform
        own = getattr(function, "on_own_batch", None)  # Ours, which compute with NumPy.
        if batchify is not None:
            run_for_batch(COLLATE)
            batch = batchify(samples_of(state))
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
            del leaves  # Nothing but the batch may refer to its arrays.
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
        """What ``make`` gives, in memory that the user can't write to."""
        numpy_as = "active" if self._computes_with_numpy else "numpy"
        with self._batch_gate:
            return packed(make, self._remote, numpy_as)
