"""One batch of a Gluon data set: fetch, transform, batchify, with MXNet's own rules.

What a ``GluonPlan`` gives for (epoch, index) depends on nothing else, as ``assemble.Plan`` has it.
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
from mxnet.util import is_np_array, is_np_shape, np_array, np_shape
from numpy.typing import NDArray

from adapters.assemble import Allocate, Assembled, Plan
from adapters.errors import note
from adapters.gluon.batchify import Skeleton, batchify_default, packed
from adapters.gluon.ndarrays import as_ndarray, as_numpy, map_arrays
from adapters.gluon.randomness import Seeding, uniforms
from adapters.gluon.recipe import Column, Known, Opaque, Recipe
from adapters.sources import stretch_of, take_rows


@dataclass
class State:
    """A batch on its way through the steps: a column of arrays' rows, or a list of items, each.

    Args:
        first: The samples, or the first members of the tuples that they are.
        rest: The other members.
        single: Samples are no tuples.
    """

    first: Column | list[Any]
    rest: list[Column | list[Any]]
    single: bool

    @property
    def columns(self) -> list[Column | list[Any]]:
        """Of all members."""
        return [self.first, *self.rest]

    def samples(self) -> list[Any]:
        """As the data set would give them."""
        columns = [items_of(column) for column in self.columns]
        return columns[0] if self.single else list(zip(*columns))


def items_of(column: Column | list[Any]) -> list[Any]:
    """The rows of a column as the user knows them."""
    if isinstance(column, list):
        return column
    if column.kind is np.ndarray:
        return list(column.array)
    batch = as_ndarray(column.array, column.kind is mx.np.ndarray)
    return [batch[row] for row in range(len(column.array))]


@dataclass
class GluonPlan(Plan):
    """The pure function (epoch, batch index) -> batch of a Gluon data set.

    Args:
        recipe: How samples come about.
        batchify: The user's own function from a list of samples to a batch; None for MXNet's.
        used: The global random generators that the user's code may draw from.
        semantics: ``(is_np_shape(), is_np_array())`` where the loader was made.
        live: Whether the data set may change between epochs, so that none may be begun early.
    """

    recipe: Recipe = field(default_factory=lambda: Recipe(None))
    batchify: Callable[[list[Any]], Any] | None = None
    used: frozenset[str] = frozenset()
    semantics: tuple[bool, bool] = (False, False)
    live: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._consumers: set[int] = set()
        self._remote = False
        self._inline: Any = threading.Lock()
        indices = self.recipe.indices
        self._indices = None if indices is None else np.asarray(indices)
        self._runs = list(_runs(self.recipe))

    def __getstate__(self) -> dict[str, Any]:
        """For a worker process: the recipe is all that it needs."""
        recipe = self.recipe
        if recipe.columns is not None:
            recipe = Recipe(None, recipe.columns, recipe.single, recipe.indices, recipe.steps)
        return {
            **self.__dict__,
            "source": None,
            "recipe": recipe,
            "_inline": contextlib.nullcontext(),
            "_consumers": set(),
            "_remote": True,
        }

    @property
    def own_epochs(self) -> bool:
        """Whether an epoch may not be begun before the one before it has ended."""
        return self.live

    @property
    def threads(self) -> bool:
        """Whether the batches are the same on threads, which share the global generators."""
        return not self.used

    def consumed_here(self) -> None:
        """Batches that this thread computes may seed the global generators."""
        self._consumers.add(threading.get_ident())

    def batch(self, epoch: int, index: int, allocate: Allocate) -> Assembled:
        """Compute batch ``index`` of ``epoch``: ``(*arrays, Skeleton)``.

        Raises:
            Exception: Whatever the data set, a transform or batchify raises, with notes that name
                the sample and the batch.
        """
        keys: Any = self.order.batch(epoch, index)
        try:
            if self.semantics == (is_np_shape(), is_np_array()):
                leaves, skeleton = self._batch(epoch, index, keys, allocate)
            else:
                with np_shape(self.semantics[0]), np_array(self.semantics[1]):
                    leaves, skeleton = self._batch(epoch, index, keys, allocate)
        except BaseException as error:
            note(error, f"in batch {int(index)} of epoch {epoch}")
            raise
        return Assembled((*leaves, skeleton), None, 0)

    def settle(self, assembled: Assembled) -> None:
        """Wait for MXNet's engine, which computes after its functions have returned."""
        map_arrays(lambda array: array.wait_to_read(), assembled.batch[:-1], lists=True)

    def _batch(
        self, epoch: int, index: int, keys: Sequence[Any], allocate: Allocate
    ) -> tuple[list[Any], Skeleton]:
        if not self.used or not (self._remote or threading.get_ident() in self._consumers):
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
        numbers = _numbers(keys, index)
        state = self._gathered(keys, allocate)
        for place, run in enumerate(self._runs):
            last = place == len(self._runs) - 1 and self.batchify is None
            if isinstance(run, Known):
                drawn = _drawn(run, self.seed, epoch, numbers)
                state = self._staged(run, state, drawn, allocate if last else np.empty, keys)
            else:
                seed = seeding.of_samples(epoch, numbers, place) if seeding else None
                state = self._called(run, state, keys, seed)
        assert state is not None
        if self.batchify is not None:
            return packed(self.batchify(state.samples()), self._remote)
        columns = [each if isinstance(each, list) else each.array for each in state.columns]
        return batchify_default(columns, state.single, self._remote, allocate, keys)

    def _gathered(self, keys: Sequence[Any], allocate: Allocate) -> State | None:
        """The base's rows for these samples; None where the base must be asked for each."""
        recipe = self.recipe
        if recipe.columns is None:
            return None
        chosen: Any = keys
        if self._indices is not None:
            chosen = self._indices[_in_range(keys, len(self._indices))]
        rows = _in_range(chosen, len(recipe.columns[0].array))
        stretch = stretch_of(rows)
        # A first member that goes through stages is not the batch yet.
        scratch = bool(self._runs)
        gathered = [
            Column(
                take_rows(
                    column.array, rows, stretch, np.empty if scratch and not place else allocate
                ),
                column.kind,
            )
            for place, column in enumerate(recipe.columns)
        ]
        return State(gathered[0], list(gathered[1:]), recipe.single)

    def _called(
        self,
        functions: list[Opaque],
        state: State | None,
        keys: Any,
        seed: Callable[[int], None] | None,
    ) -> State:
        """Run the user's functions on each sample; ``seed`` is called with its row before."""
        samples: Iterator[Any]
        if state is None:
            names = keys.tolist() if isinstance(keys, np.ndarray) else keys
            samples = map(self.recipe.base.__getitem__, self.recipe.base_numbers(names))
        else:
            samples = iter(state.samples())
        results: list[Any] = []
        try:
            for row in range(len(keys)):
                if seed is not None:
                    seed(row)
                sample = next(samples)
                for opaque in functions:
                    sample = opaque(sample)
                results.append(sample)
        except BaseException as error:
            where = f"in sample {keys[len(results)]!r}"
            if isinstance(error, StopIteration):
                stopped = RuntimeError("the data set or a transform raised StopIteration")
                note(stopped, where)
                raise stopped from error
            note(error, where)
            raise
        return _split(results, keys)

    def _staged(
        self,
        run: Known,
        state: State | None,
        drawn: NDArray[np.float64],
        allocate: Allocate,
        keys: Sequence[Any],
    ) -> State:
        """Run a stage on the first members."""
        assert state is not None
        # As transform_first does to a tuple of one.
        single = state.single or not state.rest
        rows, kind = _stacked(state.first)
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


def _runs(recipe: Recipe) -> Iterator[Known | list[Opaque]]:
    """The steps, with those that run for each sample put together.

    Where the base is asked for each sample, the first of them begins with that.
    """
    group: list[Opaque] | None = [] if recipe.columns is None else None
    for step in recipe.steps:
        if isinstance(step, Opaque):
            group = [*(group or []), step]
            continue
        if group is not None:
            yield group
            group = None
        yield step
    if group is not None:
        yield group


def _numbers(keys: Sequence[Any], index: int) -> NDArray[np.int64]:
    """What the random numbers of these samples depend on: theirs, or their places."""
    numbers = np.asarray(keys)
    if numbers.ndim == 1 and numbers.dtype.kind in "iu":
        return numbers.astype(np.int64)
    return np.arange(len(keys)) + (int(index) << 24)


def _drawn(run: Known, seed: int, epoch: int, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    if not run.stage.draws:
        return np.empty((len(numbers), 0))
    return uniforms(seed, epoch, numbers, run.number, run.stage.draws)


def _in_range(keys: Sequence[Any], size: int) -> NDArray[np.int64]:
    """Row numbers from what a sampler may give, negative ones too.

    Raises:
        IndexError: A key is out of range, or no integer.
    """
    numbers = np.asarray(keys)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise IndexError(f"samples must be named by integers, got {list(keys)[:3]!r}")
    numbers = numbers.astype(np.int64, copy=False)
    least, most = int(numbers.min()), int(numbers.max())
    if least < -size or most >= size:
        wrong = most if most >= size else least
        raise IndexError(f"sample {wrong} was asked of a data set of {size}")
    return np.where(numbers < 0, numbers + size, numbers) if least < 0 else numbers


def _stacked(column: Column | list[Any]) -> tuple[NDArray[Any] | None, type]:
    """The rows of a column as one array, and what they are; None where they differ in shape."""
    if isinstance(column, Column):
        return (None if column.kind is np.ndarray else column.array), column.kind
    first = column[0]
    if not isinstance(first, mx.nd.NDArray) or first.stype != "default":
        return None, type(first)
    for item in column:
        if type(item) is not type(first) or item.shape != first.shape or item.dtype != first.dtype:
            return None, type(first)
    rows = np.empty((len(column), *first.shape), first.dtype)
    for row, item in zip(rows, column):
        np.copyto(row, as_numpy(item))
    return rows, type(first)


def _split(results: list[Any], keys: Sequence[Any]) -> State:
    """Samples into columns, as MXNet's own batchify would."""
    if not isinstance(results[0], tuple):
        return State(results, [], True)
    length = len(results[0])
    for result, key in zip(results, keys):
        if not isinstance(result, tuple) or len(result) != length:
            size = len(result) if isinstance(result, tuple) else type(result).__name__
            raise ValueError(
                f"samples of a batch must be tuples of one length: sample {key!r} has {size}, "
                f"sample {keys[0]!r} has {length}"
            )
    columns = [list(members) for members in zip(*results)]
    if not columns:
        raise ValueError(f"samples must have members: sample {keys[0]!r} is an empty tuple")
    return State(columns[0], list(columns[1:]), False)
