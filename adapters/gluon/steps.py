"""The samples of a batch: from the base of a recipe through its steps.

    base --gathered, or decoded into rows, or asked one by one--> run --> run --> samples

A run is a stage that takes all samples at once, or what the user's own functions do to one sample
after the other. What comes out is a function of the seed, the epoch and the samples' numbers.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

from adapters.batch.key import BatchKey
from adapters.batch.plan import Allocate
from adapters.errors import RecordError, note
from adapters.generators import DECODE, Generators, current_place, generator
from adapters.gluon.members import Members, items_of, split, stacked
from adapters.gluon.names import in_range, integers, numbers_of
from adapters.gluon.ndarrays import as_ndarray
from adapters.gluon.randomness import Seeding, uniforms
from adapters.gluon.recipe import Column, Known, Opaque, Recipe
from adapters.gluon.reuse import ReusedMemory
from adapters.sources import Source, Stored, stretch_of, take_rows
from adapters.structure import flatten

FIRST_RUN = 1
"""What tells the calls of the first functions for a sample from the source's, see ``Place``."""


class Steps:
    """Runs the steps of a recipe; from any thread.

    Args:
        recipe: How samples come about.
        seed: Of all that is random.
        checked: Samples are named by whoever, so that their numbers must be looked at.
        own_order: They are named by a sampler of ours, for a data set that may have changed since;
            a source never does.
    """

    def __init__(self, recipe: Recipe, seed: int, checked: bool, own_order: bool = False) -> None:
        self._recipe = recipe
        self._seed = seed
        self._memory = ReusedMemory()
        self._checked = checked
        self._own_order = own_order
        self._indices = None if recipe.indices is None else integers(recipe.indices)
        self._runs = list(_runs(recipe))
        self._as_ndarrays = recipe.gives_ndarrays
        self._uneven = False

    def with_recipe(self, recipe: Recipe) -> Steps:
        """The same with another base, for a worker process."""
        twin = copy.copy(self)
        twin._recipe = recipe
        return twin

    @property
    def empty(self) -> bool:
        """Whether the base's samples are the data set's."""
        return not self._runs

    def made(
        self,
        key: BatchKey,
        names: Sequence[Any],
        allocate: Allocate,
        seeding: Seeding | None,
        numpy_semantics: bool,
        first: int = 0,
    ) -> Members | list[Any]:
        """Make samples.

        Args:
            key: Of their batch.
            names: What the samples are called: numbers, or whatever the data set takes.
            allocate: Gives the memory of those that come as rows of arrays.
            seeding: Of the process's generators.
            numpy_semantics: NDArrays are ``mx.np.ndarray``.
            first: Place of the first of them in the batch.
        """
        state: Members | list[Any] | None
        epoch, index = key.randomness, key.index
        if self._recipe.records is not None:
            records = self._recipe.records
            state = self._recorded(records, epoch, names, allocate, numpy_semantics)
        else:
            state = self.gathered(names, allocate)
            if state is None and self._recipe.columns is not None:
                state = self._asked(names)
        for place, run in enumerate(self._runs):
            if isinstance(run, Known):
                assert state is not None
                drawn = self._drawn(run, epoch, index, names, first)
                last = place == len(self._runs) - 1
                state = self._staged(run, state, drawn, allocate if last else np.empty, names)
            else:
                numbers = numbers_of(names, index, first)
                seed = seeding.of_samples(epoch, numbers, place) if seeding else None
                at = numbers.tolist(), place + FIRST_RUN
                state = self._called(run, state, names, seed, at)
        assert state is not None
        return state

    def gathered(self, names: Sequence[Any], allocate: Allocate) -> Members | list[Any] | None:
        """The base's rows for these samples; None where the base must be asked for each."""
        recipe = self._recipe
        if recipe.columns is None:
            return None
        rows: Any = integers(names)
        if rows is None or (self._indices is None and recipe.indices is not None):
            return None
        if self._indices is not None:
            rows = self._indices[in_range(rows, len(self._indices))]
        if self._indices is not None or self._checked or rows is not names:
            # Our own order gives an array of numbers in range.
            rows = in_range(rows, len(recipe.columns[0].array))
        stretch = stretch_of(rows)
        gathered: list[Column | list[Any]] = []
        for place, column in enumerate(recipe.columns):
            if isinstance(column.array, (np.ndarray, Stored)):
                # A first member that goes through stages is not the batch yet.
                memory = np.empty if self._runs and not place else allocate
                taken = take_rows(column.array, rows, stretch, memory)
                gathered.append(Column(taken, column.kind))
            else:
                gathered.append([column.array[row] for row in rows.tolist()])
        if recipe.single and isinstance(gathered[0], list):
            return gathered[0]  # Of whatever: tuples have members of their own.
        return Members(gathered[0], list(gathered[1:]), recipe.single)

    def _asked(self, names: Sequence[Any]) -> list[Any]:
        """What arrays give for slices, lists and whatever else they take.

        Raises:
            IndexError: In a worker process, which has the arrays alone.
        """
        if self._recipe.base is None:
            raise IndexError(
                "samples of arrays must be named by integers in worker processes, got "
                f"{list(names)[:3]!r}: give thread_pool=True"
            )
        samples = []
        for own, name in zip(self._recipe.base_numbers(names), names):
            try:
                samples.append(self._recipe.base[own])
            except BaseException as error:
                note(error, f"in sample {name!r}")
                raise
        return samples

    # --- sources of ours ---

    def _recorded(
        self,
        source: Source,
        epoch: int,
        names: Sequence[Any],
        allocate: Allocate,
        numpy_semantics: bool,
    ) -> Members | list[Any]:
        """Gathered, or decoded into the batch where the shape is known, else one by one."""
        own: Any = self._recipe.base_numbers(names)
        if (self._checked and not self._own_order) or not isinstance(own, np.ndarray):
            # Our own orders give an array of numbers in range. Worth it: 4 of 80 us for 64 digits.
            own = in_range(own, len(source))
        source.bring(own)
        if source.gathers:
            return self._of_arrays(source, own, allocate, numpy_semantics)
        leaves = None if self._uneven else source.leaves
        if leaves is None or not _is_flat(source.skeleton):
            samples = self._records(source, epoch, own, names, numpy_semantics)
            return source.padded(samples) if source.pads and self.empty else samples
        # An image that goes through stages is not the batch yet.
        memories = [np.empty if self._runs else allocate, *[allocate] * (len(leaves) - 1)]
        rows = [
            memory((len(own), *shape), dtype) for memory, (shape, dtype) in zip(memories, leaves)
        ]
        rng_of = Generators(self._seed, epoch, DECODE, own) if source.draws else None
        if source.fill(own, rng_of, rows):
            # Damaged, or unlike the first one, with more labels perhaps: then by themselves.
            source.bring(own)
            samples = self._records(source, epoch, own, names, numpy_semantics)
            self._uneven = self._recipe.base is source
            return samples
        return self._members(source, rows, source.skeleton == 0, numpy_semantics)

    def _of_arrays(
        self, source: Source, own: NDArray[np.int64], allocate: Allocate, numpy_semantics: bool
    ) -> Members | list[Any]:
        """Rows of arrays; as samples, where these are no tuples of arrays."""
        if _is_flat(source.skeleton):
            rows, skeleton = flatten(source.gather(own, np.empty if self._runs else allocate))
            if _is_flat(skeleton):
                return self._members(source, rows, skeleton == 0, numpy_semantics)
        samples = source.samples(own)
        return [source.sample(each) for each in own.tolist()] if samples is None else list(samples)

    def _members(
        self, source: Source, rows: list[NDArray[Any]], single: bool, numpy_semantics: bool
    ) -> Members:
        kind: Any = np.ndarray
        if self._as_ndarrays and (source.holds_images or (source.gathers and rows[0].ndim > 1)):
            kind = mx.np.ndarray if numpy_semantics else mx.nd.NDArray
        number = object if source.python_numbers else np.ndarray
        rest = [Column(each, number if each.ndim == 1 else np.ndarray) for each in rows[1:]]
        return Members(Column(rows[0], kind), [*rest], single)

    def _records(
        self,
        source: Source,
        epoch: int,
        own: NDArray[np.int64],
        names: Sequence[Any],
        numpy_semantics: bool,
    ) -> list[Any]:
        """Samples one by one."""
        samples = []
        for number, name in zip(own.tolist(), names):
            try:
                samples.append(self._record(source, epoch, number, numpy_semantics))
            except BaseException as error:
                note(error, f"in sample {name!r}")
                raise
        return samples

    def _record(self, source: Source, epoch: int, number: int, numpy_semantics: bool) -> Any:
        """One record; where it is damaged, and MXNet's data set there, what that makes of it."""
        rng = generator(self._seed, epoch, number, DECODE) if source.draws else None
        if source.makes_samples and (place := current_place()) is not None:
            place.sample(number)
        try:
            sample = source.sample(number, rng)
        except RecordError:
            if self._recipe.base is source:
                raise
            return self._recipe.base[number]
        if source.holds_images and self._as_ndarrays:
            return (as_ndarray(sample[0], numpy_semantics), *sample[1:])
        return sample

    # --- runs ---

    def _drawn(
        self, run: Known, epoch: int, index: int, names: Sequence[Any], first: int
    ) -> NDArray[np.float64]:
        draws = run.stage.draws
        if not draws:
            return _none_drawn(len(names))
        return uniforms(self._seed, epoch, numbers_of(names, index, first), run.number, draws)

    def _called(
        self,
        functions: list[Opaque],
        state: Members | list[Any] | None,
        names: Any,
        seed: Callable[[int], None] | None,
        drawn_by: tuple[Sequence[int], int] = ((), 0),
    ) -> list[Any]:
        """Run the user's functions on each sample.

        Args:
            functions: Of the user's.
            state: The samples; None where the base is asked for them.
            names: Theirs.
            seed: Is called with a sample's row before.
            drawn_by: What they draw from sources depends on: the samples' numbers, and the run.
        """
        samples: Iterator[Any]
        if state is None:
            names = names.tolist() if isinstance(names, np.ndarray) else names
            samples = map(self._recipe.base.__getitem__, self._recipe.base_numbers(names))
        else:
            samples = iter(state if isinstance(state, list) else state.samples())
        results: list[Any] = []
        at = current_place()
        numbers, run_number = drawn_by
        try:
            for row in range(len(names)):
                if at is not None and numbers:
                    at.sample(numbers[row], run_number)
                if seed is not None:
                    seed(row)
                sample = next(samples)
                for opaque in functions:
                    sample = opaque(sample)
                results.append(self._memory.taken(sample))
        except BaseException as error:
            where = f"in sample {names[len(results)]!r}"
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
        state: Members | list[Any],
        drawn: NDArray[np.float64],
        allocate: Allocate,
        names: Sequence[Any],
    ) -> Members | list[Any]:
        """Run a stage on the samples, or on their first members."""
        if isinstance(state, list):
            if len({len(each) if isinstance(each, tuple) else None for each in state}) > 1:
                return self._staged_singly(run, state, drawn, names)
            state = split(state, names)
        if not (run.first or state.single):
            # MXNet gives a block all members of a tuple, whether it can take them or not.
            return self._called([Opaque(run.stage.block)], state, names, None)
        # As transform_first does to a tuple of one.
        single = state.single or not state.rest
        rows, kind = stacked(state.first)
        if rows is not None:
            done = run.stage.batch(rows, drawn, allocate)
            if done is not None:
                return Members(Column(done, kind), state.rest, single)
        items = items_of(state.first)
        results = []
        for item, own, name in zip(items, drawn, names):
            try:
                results.append(run.stage.item(item, own))
            except BaseException as error:
                note(error, f"in {run.stage.name}, sample {name!r}")
                raise
        return Members(results, state.rest, single)

    def _staged_singly(
        self, run: Known, samples: list[Any], drawn: NDArray[np.float64], names: Sequence[Any]
    ) -> list[Any]:
        """Run a stage on samples that have no columns, as tuples of several lengths."""
        results: list[Any] = []
        for row, sample in enumerate(samples):
            one = slice(row, row + 1)
            state = self._staged(run, [sample], drawn[one], np.empty, names[one])
            results += state if isinstance(state, list) else state.samples()
        return results


@functools.lru_cache(maxsize=8)
def _none_drawn(count: int) -> NDArray[np.float64]:
    return np.empty((count, 0))


def _is_flat(skeleton: Any) -> bool:
    """Whether a sample is one leaf, or a tuple of leaves."""
    return skeleton == 0 or (type(skeleton) is tuple and skeleton == tuple(range(len(skeleton))))


def _runs(recipe: Recipe) -> Iterator[Known | list[Opaque]]:
    """The steps, with those that run for each sample put together.

    Where the base is asked for each sample, the first of them begins with that.
    """
    asked = recipe.columns is None and recipe.records is None
    group: list[Opaque] | None = [] if asked else None
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
