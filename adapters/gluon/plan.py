"""One batch of a Gluon data set: fetch, transform, batchify, with MXNet's own rules.

What a ``GluonPlan`` gives for (epoch, index) depends on nothing else.
In the trainer's process a batch may hold NDArrays; in a worker process it is written into the slot
as NumPy arrays. Either way it is a flat tuple of arrays and a ``Skeleton``, from which the loader
makes what the user sees.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.util import is_np_array, is_np_shape, set_np
from numpy.typing import NDArray

from adapters.batch.order import DrawnOrder, Epoch, Order
from adapters.batch.plan import Allocate, Assembled, Plan
from adapters.batch.turns import Turns
from adapters.errors import RecordError, note
from adapters.generators import DECODE, generator, generators
from adapters.gluon.batchify import Skeleton, batchify_default, packed
from adapters.gluon.keys import in_range, numbers_of
from adapters.gluon.ndarrays import as_ndarray, as_numpy, map_arrays
from adapters.gluon.randomness import Seeding, uniforms
from adapters.gluon.recipe import Column, Known, Opaque, Recipe, runs_of
from adapters.gluon.state import State, items_of, split, stacked
from adapters.ownership import detached
from adapters.sources import RecordSource, stretch_of, take_rows


@dataclass
class GluonPlan(Plan):
    """The pure function (epoch, batch index) -> batch of a Gluon data set.

    Args:
        order: Which samples make which batch.
        recipe: How samples come about.
        batchify: The user's own function from a list of samples to a batch; None for MXNet's.
        used: The global random generators that the user's code may draw from.
        semantics: ``(is_np_shape(), is_np_array())`` where the loader was made.
        live: Whether the data set may change between epochs, so that none may be begun early.
        seed: Of all that is random.
    """

    order: Order
    recipe: Recipe
    batchify: Callable[[list[Any]], Any] | None = None
    used: frozenset[str] = frozenset()
    semantics: tuple[bool, bool] = (False, False)
    live: bool = False
    seed: int = 0
    _turns: Turns = field(init=False, repr=False, compare=False, default_factory=Turns)

    def __post_init__(self) -> None:
        self._consumers: set[int] = set()
        self._remote = False
        self._inline: Any = threading.Lock()
        indices = self.recipe.indices
        self._indices = None if indices is None else np.asarray(indices)
        self._runs = list(runs_of(self.recipe))
        self._as_ndarrays = self.recipe.gives_ndarrays
        self._uneven = False

    def __getstate__(self) -> dict[str, Any]:
        """For a worker process: the recipe is all that it needs."""
        recipe = self.recipe
        if recipe.columns is not None:
            recipe = Recipe(None, recipe.columns, recipe.single, recipe.indices, recipe.steps)
        return {
            **self.__dict__,
            "recipe": recipe,
            "_inline": contextlib.nullcontext(),
            "_consumers": set(),
            "_remote": True,
        }

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self.order)

    @property
    def batch_size(self) -> int:
        """Samples in most batches."""
        return self.order.batch_size

    def rows(self, epoch: int, index: int) -> int:
        """Samples in a batch."""
        keys: Any = self.order.batch(epoch, index)
        return len(keys)

    def stand_in(self) -> None:
        """Be a copy that isn't in a worker process."""
        self._remote = False

    @property
    def own_epochs(self) -> bool:
        """Whether an epoch may not be begun before the one before it has ended."""
        return self.live

    @property
    def threads(self) -> bool:
        """Whether the batches are the same on threads, which share the global generators."""
        return not self.used

    @property
    def own_functions(self) -> bool:
        """Whether there are functions of the user's own, which may call MXNet for each sample."""
        return bool(self.recipe.opaque) or self.batchify is not None

    @property
    def only_decodes(self) -> bool:
        """Whether it decodes images and little else, which takes no interpreter lock."""
        records = self.recipe.records
        decodes = records is not None and records.decodes and records.leaves is not None
        return decodes and not self._runs and self.batchify is None

    def begin_pass(self) -> None:
        """Take the arrays and the semantics as they are now."""
        self.semantics = (is_np_shape(), is_np_array())
        for column in self.recipe.columns or ():
            if column.owner is not None:
                column.owner.wait_to_read()

    def consumed_here(self) -> None:
        """Batches that this thread computes may seed the global generators."""
        self._consumers.add(threading.get_ident())

    def no_longer_consumed_here(self) -> None:
        """A pass by this thread is over; the thread's number may become another's."""
        self._consumers.discard(threading.get_ident())

    def batch(self, epoch: int, index: int, allocate: Allocate) -> Assembled:
        """Compute batch ``index`` of ``epoch``: ``(*arrays, Skeleton)``.

        Raises:
            Exception: Whatever the data set, a transform or batchify raises, with notes that name
                the sample and the batch.
        """
        keys: Any = self.order.batch(epoch, index)
        try:
            consumers = threading.get_ident() in self._consumers
            if not consumers and self.semantics != (is_np_shape(), is_np_array()):
                set_np(*self.semantics)  # Of this thread, which is a worker's.
            randomness = epoch.entropy if isinstance(epoch, Epoch) else epoch
            leaves, skeleton = self._turns.compute(
                self._batch, randomness, index, keys, allocate, consumers
            )
        except BaseException as error:
            note(error, f"in batch {int(index)} of epoch {epoch}")
            raise
        return Assembled((*leaves, skeleton), None, 0)

    def settle(self, assembled: Assembled) -> None:
        """Wait for MXNet's engine, which computes after its functions have returned."""
        map_arrays(lambda array: array.wait_to_read(), assembled.batch[:-1], lists=True)

    def _batch(
        self, epoch: int, index: int, keys: Sequence[Any], allocate: Allocate, consumers: bool
    ) -> tuple[list[Any], Skeleton]:
        if not self.used or not (self._remote or consumers):
            return self._made(epoch, index, keys, allocate, None)
        seeding = Seeding(self.used, self.seed, restore=not self._remote)
        with self._inline, seeding.batch(epoch, int(index)):
            return self._made(epoch, index, keys, allocate, seeding)

    def _made(
        self,
        epoch: int,
        index: int,
        keys: Sequence[Any],
        allocate: Allocate,
        seeding: Seeding | None,
    ) -> tuple[list[Any], Skeleton]:
        state: State | list[Any] | None
        if self.recipe.records is not None:
            state = self._recorded(self.recipe.records, epoch, keys, allocate)
        else:
            state = self._gathered(keys, allocate)
        for place, run in enumerate(self._runs):
            last = place == len(self._runs) - 1 and self.batchify is None
            if isinstance(run, Known):
                assert state is not None
                drawn = self._drawn(run, epoch, index, keys)
                members = split(state, keys) if isinstance(state, list) else state
                state = self._staged(run, members, drawn, allocate if last else np.empty, keys)
            else:
                numbers = numbers_of(keys, index)
                seed = seeding.of_samples(epoch, numbers, place) if seeding else None
                state = self._called(run, state, keys, seed)
        assert state is not None
        if self.batchify is not None:
            samples = state if isinstance(state, list) else state.samples()
            return self._batchified(self.batchify, samples, index)
        if isinstance(state, list):
            state = split(state, keys)
        columns = [each if isinstance(each, list) else each.array for each in state.columns]
        return batchify_default(columns, state.single, self._remote, allocate, keys)

    def _batchified(
        self, batchify: Callable[[list[Any]], Any], samples: list[Any], index: int
    ) -> tuple[list[Any], Skeleton]:
        """What the user's own batchify makes of samples, in memory that it can't write to."""

        def watch(array: Any) -> None:
            if self._turns.watching:
                self._turns.watch(("batch", index), as_numpy(array))

        leaves, skeleton, kept = packed(lambda: batchify(samples), self._remote, watch)
        if kept:
            self._turns.one_at_a_time = True
        return leaves, skeleton

    def _taken(self, sample: Any, key: Any) -> Any:
        """A sample, or a copy where it lies in memory that another sample lay in, or may lie."""
        if self._turns.watching:
            self._turns.watch(key, map_arrays(as_numpy, sample, lists=True))
        copy = detached(sample)
        map_arrays(lambda array: array.wait_to_read(), copy, lists=True)
        return copy

    def _drawn(
        self, run: Known, epoch: int, index: int, keys: Sequence[Any]
    ) -> NDArray[np.float64]:
        draws = run.stage.draws
        if not draws:
            return np.empty((len(keys), 0))
        return uniforms(self.seed, epoch, numbers_of(keys, index), run.number, draws)

    def _gathered(self, keys: Sequence[Any], allocate: Allocate) -> State | None:
        """The base's rows for these samples; None where the base must be asked for each."""
        recipe = self.recipe
        if recipe.columns is None:
            return None
        rows: Any = keys
        if self._indices is not None:
            rows = self._indices[in_range(rows, len(self._indices))]
        if self._indices is not None or isinstance(self.order, DrawnOrder):
            # Our own order gives numbers in range.
            rows = in_range(rows, len(recipe.columns[0].array))
        stretch = stretch_of(rows)
        gathered: list[Column | list[Any]] = []
        for place, column in enumerate(recipe.columns):
            if isinstance(column.array, np.ndarray):
                # A first member that goes through stages is not the batch yet.
                memory = np.empty if self._runs and not place else allocate
                taken = take_rows(column.array, rows, stretch, memory)
                gathered.append(Column(taken, column.kind))
            else:
                gathered.append([column.array[row] for row in rows.tolist()])
        return State(gathered[0], list(gathered[1:]), recipe.single)

    def _recorded(
        self, source: RecordSource, epoch: int, keys: Sequence[Any], allocate: Allocate
    ) -> State | list[Any]:
        """Records, decoded into the batch where the shape is known, else one by one."""
        own = in_range(self.recipe.base_numbers(keys), len(source))
        leaves = None if self._uneven else source.leaves
        if leaves is None:
            return self._records(source, epoch, own, keys)
        # An image that goes through stages is not the batch yet.
        memories = [np.empty if self._runs else allocate, allocate]
        rows = [
            memory((len(own), *shape), dtype) for memory, (shape, dtype) in zip(memories, leaves)
        ]
        rng_of = generators(self.seed, epoch, DECODE) if source.draws else None
        if source.fill(own, rng_of, rows):
            # Damaged, or unlike the first one, with more labels perhaps: then by themselves.
            samples = self._records(source, epoch, own, keys)
            self._uneven = self.recipe.base is source
            return samples
        kind: Any = np.ndarray
        if self._as_ndarrays:
            kind = mx.np.ndarray if self.semantics[1] else mx.nd.NDArray
        # A record with one label has it as a Python number.
        labels = object if rows[1].ndim == 1 else np.ndarray
        return State(Column(rows[0], kind), [Column(rows[1], labels)], False)

    def _records(
        self, source: RecordSource, epoch: int, own: NDArray[np.int64], keys: Sequence[Any]
    ) -> list[Any]:
        """Records one by one, as samples."""
        samples = []
        for number, key in zip(own.tolist(), keys):
            try:
                samples.append(self._record(source, epoch, number))
            except BaseException as error:
                note(error, f"in sample {key!r}")
                raise
        return samples

    def _record(self, source: RecordSource, epoch: int, number: int) -> Any:
        """One record; where it is damaged, and MXNet's data set there, what that makes of it."""
        try:
            sample = source.sample(number, generator(self.seed, epoch, number, DECODE))
        except RecordError:
            if self.recipe.base is source:
                raise
            return self.recipe.base[number]
        if source.holds_images and self._as_ndarrays:
            return (as_ndarray(sample[0], self.semantics[1]), *sample[1:])
        return sample

    def _called(
        self,
        functions: list[Opaque],
        state: State | list[Any] | None,
        keys: Any,
        seed: Callable[[int], None] | None,
    ) -> list[Any]:
        """Run the user's functions on each sample; ``seed`` is called with its row before."""
        samples: Iterator[Any]
        if state is None:
            names = keys.tolist() if isinstance(keys, np.ndarray) else keys
            samples = map(self.recipe.base.__getitem__, self.recipe.base_numbers(names))
        else:
            samples = iter(state if isinstance(state, list) else state.samples())
        results: list[Any] = []
        turns = self._turns
        try:
            for row in range(len(keys)):
                if seed is not None:
                    seed(row)
                sample = next(samples)
                for opaque in functions:
                    sample = opaque(sample)
                if turns.watching or turns.one_at_a_time:
                    sample = self._taken(sample, keys[row])
                results.append(sample)
        except BaseException as error:
            where = f"in sample {keys[len(results)]!r}"
            if isinstance(error, StopIteration):
                stopped = RuntimeError("the data set or a transform raised StopIteration")
                note(stopped, where)
                raise stopped from error
            note(error, where)
            raise
        return results

    def _staged(
        self,
        run: Known,
        state: State,
        drawn: NDArray[np.float64],
        allocate: Allocate,
        keys: Sequence[Any],
    ) -> State | list[Any]:
        """Run a stage on the samples, or on their first members."""
        if not (run.first or state.single):
            # MXNet gives a block all members of a tuple, whether it can take them or not.
            return self._called([Opaque(run.stage.block)], state, keys, None)
        # As transform_first does to a tuple of one.
        single = state.single or not state.rest
        rows, kind = stacked(state.first)
        if rows is not None:
            done = run.stage.batch(rows, drawn, allocate)
            if done is not None:
                return State(Column(done, kind), state.rest, single)
        items = items_of(state.first)
        results = []
        for item, own, key in zip(items, drawn, keys):
            try:
                results.append(run.stage.item(item, own))
            except BaseException as error:
                note(error, f"in {run.stage.name}, sample {key!r}")
                raise
        return State(results, state.rest, single)
