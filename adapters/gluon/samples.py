"""Computation of the samples of a batch: the base of a pipeline, then its ops.

    base --gather, or decode into rows, or get one by one--> run --> run --> Members

A run is a stage, which processes all samples at once, or a group of Python ops, which are
called sample by sample. The result is a function of the seed, the epoch and the samples' numbers.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np
from mxnet.util import is_np_array
from numpy.typing import NDArray

from adapters.batch.plan import Allocate, BatchKey
from adapters.errors import RecordError, note
from adapters.generators import DECODE, Generators, Place, generator
from adapters.gluon.ndarrays import as_ndarray, as_numpy, map_arrays
from adapters.gluon.pipeline import Column, Pipeline, PythonOp, in_range, integers
from adapters.gluon.stages import Stage, call, uniforms
from adapters.ownership import detached
from adapters.seeding import seed, seed_with, seeded, seeds
from adapters.sources import Source, Stored, stretch_of, take_rows
from adapters.structure import flatten, to_array

FIRST_RUN = 1
"""Run number of the first user functions, which separates their calls from the source's, see
``Place``."""
# Stream of the seeds of the global generators. Streams 0 and 1 are for transforms.
_SEEDS = 2
WHOLE_BATCH = _SEEDS + (1 << 32)
"""Stream for functions of a whole batch, above those for functions called per sample."""
_SOURCE = WHOLE_BATCH + 1  # For the user's functions in a source, such as ``decode``.
_OTHERS = WHOLE_BATCH + 2  # For functions that nothing else seeds, such as ``on_error``.
_NOT_NEGATIVE = 2**63 - 1  # Numbers from a user's sampler may be negative.


class Members(NamedTuple):
    """Samples of a batch by member, each a column of rows or a list of items."""

    columns: list[Column | list[Any]]
    single: bool = True
    """True if samples are the items of the only column: any objects, possibly tuples."""

    def samples(self) -> list[Any]:
        """List the samples as the data set would return them."""
        columns = [_items_of(column) for column in self.columns]
        return columns[0] if self.single else list(zip(*columns))

    def split(self, keys: Sequence[Any]) -> Members:
        """Split tuples into columns like MXNet's batchify; they must have one length."""
        samples = self.columns[0]
        if not self.single or not isinstance(samples, list):
            return self
        if not samples:
            raise IndexError("a batch must have a sample: the sampler gave none")
        if not isinstance(samples[0], tuple):
            return self
        length = len(samples[0])
        for sample, key in zip(samples, keys):
            if _length(sample) != length:
                size = len(sample) if isinstance(sample, tuple) else type(sample).__name__
                raise ValueError(
                    f"samples of a batch must be tuples of one length: sample {key!r} has {size}, "
                    f"sample {keys[0]!r} has {length}"
                )
        return Members([list(members) for members in zip(*samples)], False)


@dataclass
class Request:
    """Samples to make for a batch."""

    key: BatchKey
    place: Place
    names: Any
    """Names of the samples: numbers, or whatever the data set accepts."""
    allocate: Allocate
    """Allocates memory for samples that are rows of arrays."""
    draws: frozenset[str]
    """Global generators to seed before each call of user code."""
    first: int = 0
    """Position of the first sample in the batch."""

    @functools.cached_property
    def numbers(self) -> NDArray[np.int64]:
        """Numbers that the random draws depend on: positions in the batch if names aren't numbers.

        int64 ``(samples,)``
        """
        numbers = integers(self.names)
        if numbers is not None:
            return numbers
        return np.arange(len(self.names)) + self.first + (self.key.index << 24)


class Runner:
    """Runs a pipeline, from any thread; ``checked`` sample numbers come from a user's sampler."""

    def __init__(self, pipeline: Pipeline, seed: int, checked: bool) -> None:
        self._pipeline = pipeline
        self._seed = seed
        self._checked = checked
        self._copies: dict[int, bool] = {}
        """For each run of user code, by its place: whether its samples are copied."""
        self.runs = _runs(pipeline)
        self._as_ndarrays = pipeline.gives_ndarrays
        self._uneven = False

    def made(self, request: Request) -> Members:
        """Make samples."""
        pipeline, state = self._pipeline, Members([])
        if not len(request.names):
            return Members([[]])
        if pipeline.records is not None:
            state = self._recorded(pipeline.records, request)
        elif pipeline.columns is not None:
            state = self.gathered(pipeline.columns, request.names, request.allocate)
        for place, run in enumerate(self.runs):
            if isinstance(run, Stage):
                state = self._staged(run, state, request, place)
            else:
                state = self._called(run, state, request, place)
        return state

    def gathered(self, columns: list[Column], names: Sequence[Any], allocate: Allocate) -> Members:
        """Gather the rows of the base's columns for these samples."""
        rows = self._base_numbers(names, len(columns[0].array))
        stretch = stretch_of(rows)
        gathered: list[Column | list[Any]] = []
        for place, (array, kind) in enumerate(columns):
            if isinstance(array, (np.ndarray, Stored)):
                # A first member that goes through ops is not yet the batch's memory.
                memory = np.empty if self.runs and not place else allocate
                gathered.append(Column(take_rows(array, rows, stretch, memory), kind))
            else:
                gathered.append([array[row] for row in rows.tolist()])
        return Members(gathered, self._pipeline.single)

    def _base_numbers(self, names: Any, size: int) -> NDArray[np.int64]:
        """Numbers of samples in the base, which has ``size``; ``IndexError`` if out of range."""
        indices = self._pipeline.indices
        if indices is not None:
            return in_range(indices[in_range(names, len(indices))], size)
        # Our own orders need no check. That saves 4 of 80 us for 64 digits.
        own = not self._checked and isinstance(names, np.ndarray)
        return names if own else in_range(names, size)

    # --- sources ---

    def _recorded(self, source: Source, request: Request) -> Members:
        """Read samples of a source: gathered, decoded into rows of known shape, or one by one."""
        own = self._base_numbers(request.names, len(source))
        source.fetch(own)
        # An image that goes through ops is not yet the batch's memory.
        memory = np.empty if self.runs else request.allocate
        if source.gathers:
            if _is_flat(source.treedef):
                rows, treedef = flatten(source.gather(own, memory))
                if _is_flat(treedef):
                    return self._members(source, rows, treedef == 0)
            fetched = source.samples(own)  # Samples that aren't tuples of arrays.
            if fetched is not None:
                return Members([list(fetched)])
        leaves = None if self._uneven else source.leaves
        if leaves is not None and _is_flat(source.treedef):
            memories = [memory, *[request.allocate] * (len(leaves) - 1)]
            rows = [make((len(own), *each), dtype) for make, (each, dtype) in zip(memories, leaves)]
            epoch = request.key.epoch
            rng_of = Generators(self._seed, epoch, DECODE, own) if source.draws else None
            if not source.fill(own, rng_of, rows):
                return self._members(source, rows, source.treedef == 0)
            # A sample is damaged or differs from the first one, say in labels: read one by one.
            source.fetch(own)
        samples = self._records(source, own, request)
        self._uneven |= leaves is not None and self._pipeline.base is source
        padded = source.pads and not self.runs
        return Members([source.padded(samples) if padded else samples])

    def _members(self, source: Source, rows: list[NDArray[Any]], single: bool) -> Members:
        kind: Any = np.ndarray
        if self._as_ndarrays and (source.holds_images or (source.gathers and rows[0].ndim > 1)):
            kind = mx.np.ndarray if is_np_array() else mx.nd.NDArray
        number = object if source.python_numbers else np.ndarray
        rest = [Column(each, number if each.ndim == 1 else np.ndarray) for each in rows[1:]]
        return Members([Column(rows[0], kind), *rest], single)

    def _records(self, source: Source, own: NDArray[np.int64], request: Request) -> list[Any]:
        """Read samples one by one; a damaged record by MXNet's data set, if there is one."""
        epoch, base = request.key.epoch, self._pipeline.base
        samples: list[Any] = []
        for number, name in zip(own.tolist(), request.names):
            rng = generator(self._seed, epoch, number, DECODE) if source.draws else None
            if source.makes_samples:
                request.place.sample(number)
            seed(request.draws, self._seed, epoch, number, _SOURCE)
            try:
                try:
                    sample = source.sample(number, rng)
                except RecordError:
                    if base is source:
                        raise
                    sample = base[number]
                else:
                    if source.holds_images and self._as_ndarrays:
                        sample = (as_ndarray(sample[0], is_np_array()), *sample[1:])
            except BaseException as error:
                note(error, f"in sample {name!r}")
                raise
            samples.append(sample)
        return samples

    # --- runs ---

    def _called(self, ops: list[PythonOp], state: Members, request: Request, place: int) -> Members:
        """Run the user's functions on each sample; without columns, on those of the base.

        The ``place`` of the run separates the draws of one sample. If a data set or a transform
        fills one buffer for every sample, the first batch shows it, and all samples are copied.
        """
        names, copies = request.names, self._copies.get(place)
        if copies is None and len(names) == 1:
            copies = True  # May be one of several that are made one by one, see ``on_error``.
        samples = iter(state.samples() if state.columns else self._pipeline.read(names))
        results: list[Any] = []
        originals: list[Any] = []
        draws, epoch = request.draws, request.key.epoch
        numbers = request.numbers.tolist()
        if draws:
            drawn = seeds(self._seed, epoch, request.numbers & _NOT_NEGATIVE, _SEEDS + place)
        try:
            for row in range(len(names)):
                request.place.sample(numbers[row], place + FIRST_RUN)
                if draws:
                    seed_with(draws, drawn[row])
                sample = next(samples)
                for op in ops:
                    sample = op(sample)
                if copies is None:
                    originals.append(sample)
                if copies is not False:
                    sample = detached(sample)
                    map_arrays(lambda array: array.wait_to_read(), sample, lists=True)
                results.append(sample)
        except BaseException as error:
            note(error, f"in sample {names[len(results)]!r}")
            raise
        if copies is None and len(results) > 1:
            leaves = flatten(map_arrays(as_numpy, originals, lists=True))[0]
            arrays = [to_array(leaf) for leaf in leaves if hasattr(leaf, "__array__")]
            before = [array for array in arrays if array.size and not array.dtype.hasobject]
            shared = len({array.ctypes.data for array in before}) < len(before)
            self._copies[place] = shared
            return Members([results if shared else originals])
        return Members([results])

    def _staged(self, stage: Stage, state: Members, request: Request, place: int) -> Members:
        """Run a stage on the samples, or on their first members: all at once, or one by one."""
        names, first = request.names, state.columns[0]
        items = first if state.single and isinstance(first, list) else [()]
        if len(set(map(_length, items))) == 1:
            members = state.split(names)
            column, *others = members.columns
            if others and not stage.first:
                # MXNet passes all members of a tuple to a block, which can't take them.
                return self._called([PythonOp((stage.block,))], members, request, place)
            staged = self._staged_column(stage, column, request, place)
            if staged is not None:
                # transform_first also unpacks a tuple of one.
                return Members([staged, *others], members.single or not others)
        results: list[Any] = []
        for row, sample in enumerate(state.samples()):
            own = {"names": names[row : row + 1], "first": request.first + row}
            one = replace(request, allocate=np.empty, **own)
            results += self._staged(stage, Members([[sample]]), one, place).samples()
        return Members([results])

    def _staged_column(
        self, stage: Stage, column: Column | list[Any], request: Request, place: int
    ) -> Column | list[Any] | None:
        """Run a stage on items at once; None if they must be separate. A single one never is."""
        rows, kind = _stacked(column)
        if rows is not None:
            drawn = np.empty((len(rows), 0))
            if draws := stage.draws:
                stream = sum(isinstance(each, Stage) for each in self.runs[:place])
                drawn = uniforms(self._seed, request.key.epoch, request.numbers, stream, draws)
            memory = request.allocate if place == len(self.runs) - 1 else np.empty
            whole = stage.function(stage.block, rows, drawn, memory)
            if whole is not None:
                return Column(whole, kind)
        if len(request.names) > 1:
            return None
        try:
            return [call(stage.block, *_items_of(column))]
        except BaseException as error:
            note(error, f"in {type(stage.block).__name__}, sample {request.names[0]!r}")
            raise


def _runs(pipeline: Pipeline) -> list[Stage | list[PythonOp]]:
    """List the ops, with consecutive Python ops grouped.

    If the base is read sample by sample, the first run does that, and may have no ops.
    """
    runs: list[Any] = []
    for is_stage, group in itertools.groupby(pipeline.ops, lambda op: isinstance(op, Stage)):
        ops = list(group)
        runs += ops if is_stage else [ops]
    asked = pipeline.columns is None and pipeline.records is None
    return [[], *runs] if asked and not (runs and isinstance(runs[0], list)) else runs


# --- columns ---


def _items_of(column: Column | list[Any]) -> list[Any]:
    if isinstance(column, list):
        return column
    if column.kind is np.ndarray:
        return list(column.array)
    if column.kind is object:
        return column.array.tolist()  # type: ignore[no-any-return]
    batch = as_ndarray(column.array, column.kind is mx.np.ndarray)
    return [batch[row] for row in range(len(column.array))]


def _stacked(column: Column | list[Any]) -> tuple[NDArray[Any] | None, type]:
    """Return the rows of a column as one array, and their type.

    The array is None if the rows aren't NDArrays of one shape and dtype.
    """
    if isinstance(column, Column):
        own = column.kind in (np.ndarray, object)
        return (None if own else column.array), column.kind
    first = column[0]
    if not isinstance(first, mx.nd.NDArray) or first.stype != "default":
        return None, type(first)
    for item in column:
        if type(item) is not type(first) or item.shape != first.shape or item.dtype != first.dtype:
            return None, type(first)
    return np.stack([as_numpy(item) for item in column]), type(first)


def _length(sample: Any) -> int | None:
    return len(sample) if isinstance(sample, tuple) else None


def _is_flat(treedef: Any) -> bool:
    """True if a sample is one leaf or a tuple of leaves."""
    return treedef == 0 or (type(treedef) is tuple and treedef == tuple(range(len(treedef))))


@contextlib.contextmanager
def seeded_batch(
    used: frozenset[str], own_seed: int, epoch: int, index: int, restore: bool
) -> Iterator[frozenset[str]]:
    """Seed the global generators that the code may use for a batch, and restore them at the end.

    Yields those to seed for each sample. Seeding MXNet's takes 1.2 ms (1.9.1 fills 1,024 states),
    so it is seeded once per batch. It can't be read: it is seeded again with a number drawn from
    it, but not in worker processes.
    """
    per_sample = used - {"mxnet"}
    with seeded(used):  # One thread at a time, also for MXNet's generator alone.
        seed(per_sample, own_seed, epoch, index, _OTHERS)
        if "mxnet" not in used:
            yield per_sample
            return
        before = None
        if restore:
            drawn = mx.nd.random.randint(0, 2**31 - 1, shape=(1,), ctx=mx.cpu(0))
            before = int(drawn.asscalar())
        mx.random.seed(int(generator(own_seed, epoch, index, _SEEDS).integers(2**31)))
        try:
            yield per_sample
        finally:
            if before is not None:
                mx.random.seed(before)
