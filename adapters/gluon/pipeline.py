"""Decomposition of a Gluon data set into ops that can run on whole batches.

    base (rows of arrays, or any data set)  ->  op  ->  op  ->  ...  ->  columns of a batch

A data set is a chain: ``transform`` wraps, ``take``, ``shard`` and ``sample`` select, and the base
consists of arrays or is any other data set. ``pipeline_of`` follows the chain and recognises parts
by their exact type. Anything else runs unchanged, one sample at a time.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np
from mxnet.gluon.data import dataset as _dataset
from mxnet.gluon.data.vision import ImageRecordDataset
from mxnet.recordio import MXIndexedRecordIO
from numpy.typing import NDArray

from adapters.generators import current_place
from adapters.gluon.ndarrays import as_numpy
from adapters.gluon.stages import STAGES, Stage, call, stages_of
from adapters.records import Index, RecordFiles, Shard
from adapters.sources import ArraySource, MapSource, Source, Subset
from adapters.sources.decoders import Images
from adapters.sources.records import RecordSource
from adapters.sources.stored import Stored, is_stored
from adapters.user_code import Gate, name_of


class Column(NamedTuple):
    """Array of one member of all samples: sample i is row i."""

    array: Any
    """``(samples, ...)``, in memory or of h5py or zarr; or a list, whose items aren't converted."""
    kind: type
    """Type of a row for the user: ``mx.nd.NDArray``, ``mx.np.ndarray``, ``np.ndarray`` for NumPy's
    rows and scalars and for lists, or ``object`` for Python numbers."""


class PythonOp(NamedTuple):
    """Python functions that are called for each sample, such as the blocks of a ``Compose``."""

    functions: tuple[Callable[..., Any], ...]
    """The first one gets the members of a tuple as arguments, each other one what came before."""
    first: bool = False
    """True to transform the first member of a tuple only."""

    def __call__(self, sample: Any) -> Any:
        """Apply the functions to a sample as a Gluon data set does."""
        arguments = sample if isinstance(sample, tuple) else (sample,)
        rest: tuple[Any, ...] = ()
        if self.first:
            arguments, rest = (arguments[0],), arguments[1:]
        value = call(self.functions[0], *arguments)
        for function in self.functions[1:]:
            value = call(function, value)
        return (value, *rest) if rest else value


@dataclass
class Pipeline:
    """Base data set and ops that make the samples of a data set."""

    base: Any
    """``base[i]`` is a sample before any op."""
    columns: list[Column] | None = None
    """Arrays of the base, if it consists of arrays."""
    single: bool = False
    """True if a sample is the single column's row, and no tuple."""
    indices: NDArray[np.int64] | None = None
    """Samples of the base that the data set has, in order; None for all."""
    ops: list[PythonOp | Stage] = field(default_factory=list)
    records: Source | None = None
    """The base as a source, if it is one."""

    def __getstate__(self) -> dict[str, Any]:
        """State for a worker process, which needs no base beside the columns."""
        return {**self.__dict__, "base": None if self.columns is not None else self.base}

    @property
    def draws(self) -> bool:
        """True if native ops or the source draw random numbers for the samples."""
        recorded = self.records is not None and self.records.draws
        return recorded or any(isinstance(op, Stage) and op.draws for op in self.ops)

    @property
    def users_code(self) -> list[Any]:
        """User objects and functions that make samples, one at a time."""
        base = [] if self.columns is not None else [self.base]
        if self.records is not None:
            base = list(self.records.users_code)
        return base + [each for op in self.ops if isinstance(op, PythonOp) for each in op.functions]

    @property
    def gives_ndarrays(self) -> bool:
        """True if images of a source become NDArrays instead of NumPy arrays.

        They do if MXNet's data set returns NDArrays, and before a block.
        """
        if self.base is not self.records or not self.ops:
            return self.base is not self.records
        op = self.ops[0]
        return isinstance(op.block if isinstance(op, Stage) else op.functions[0], mx.gluon.Block)

    def explanation(self) -> Iterator[str]:
        """Yield a line for the base and for each op."""
        records = self.records
        name = "source" if self.base is records else type(self.base).__name__
        if self.indices is not None:
            name += f", {len(self.indices)} of its samples"
        if records is not None:
            yield f"{name}: {records.way(transformed=False)}"
        elif self.columns is not None:
            yield f"{name}: arrays, gathered a batch at a time"
        else:
            yield f"{name}: asked for a sample at a time; arrays and record files are read at once"
        native = ", ".join(kind.__name__ for kind in STAGES)
        for op in self.ops:
            if isinstance(op, Stage):
                drawn = ", from each sample's own random numbers" if op.draws else ""
                yield f"{type(op.block).__name__}: a batch at a time{drawn}"
                continue
            rest = f"a sample at a time, by itself; what runs a batch at a time is {native}"
            yield from (f"{name_of(function)}: {rest}" for function in op.functions)

    def base_numbers(self, keys: Any) -> Any:
        """Numbers in the base of the samples that the data set calls ``keys``."""
        if self.indices is None:
            return keys
        # NumPy takes a bool for a mask.
        numbers = (int(key) if isinstance(key, (bool, np.bool_)) else key for key in keys)
        return [int(self.indices[number]) for number in numbers]

    def read(self, names: Any) -> Iterator[Any]:
        """Read samples of the base one by one."""
        names = names.tolist() if isinstance(names, np.ndarray) else list(names)
        return map(self.base.__getitem__, self.base_numbers(names))

    def selected(self, whole: Any, numbers: Any) -> Pipeline:
        """Pipeline of a selection of samples; of ``whole`` itself if they aren't numbered."""
        own = integers(self.base_numbers(numbers))
        return Pipeline(whole) if own is None else dataclasses.replace(self, indices=own)


def pipeline_for(data: Any, batchify: Any) -> Pipeline:
    """Decompose a data set for a loader with this ``batchify_fn``."""
    pipeline = pipeline_of(data)
    if isinstance(pipeline.ops[0], PythonOp) if pipeline.ops else batchify is not None:
        pipeline.columns = None  # Samples are fetched one by one anyway.
    return pipeline


def pipeline_of(data: Any) -> Pipeline:
    """Decompose a data set."""
    if type(data) is _dataset._LazyTransformDataset:
        pipeline = pipeline_of(data._data)
        first = type(data._fn) is _dataset._TransformFirstClosure
        inner = data._fn._fn if first else data._fn
        ops: list[Any] = stages_of(inner) or [inner]
        for is_stage, group in itertools.groupby(ops, lambda op: isinstance(op, Stage)):
            if is_stage:
                pipeline.ops += [stage._replace(first=first) for stage in group]
            else:
                pipeline.ops.append(PythonOp(tuple(group), first))
        return pipeline
    if type(data) in (_dataset._SampledDataset, _dataset._FilteredDataset):
        return pipeline_of(data._dataset).selected(data, data._indices)
    if type(data) is ImageRecordDataset and (source := _image_source(data)) is not None:
        plain = copy.copy(data)
        plain._transform = None
        pipeline = Pipeline(plain, records=source)
        if data._transform is not None:
            pipeline.ops.append(PythonOp((data._transform,)))
        return pipeline
    array = data._data if type(data) is _dataset.SimpleDataset else data
    if isinstance(array, Source):
        if type(array) is MapSource:
            return pipeline_of(array.data)
        if type(array) is Subset and type(array.whole) is MapSource:
            return pipeline_of(array.whole.data).selected(array, array.numbers)
        return Pipeline(array, records=array)
    members, single = [None], True
    if isinstance(data, _dataset._DownloadedDataset):
        own = type(data).__getitem__, type(data).__len__  # A subclass may override them.
        stock = _dataset._DownloadedDataset.__getitem__, _dataset._DownloadedDataset.__len__
        if own == stock and data._transform is None:
            members, single = [data._data, data._label], False
    elif type(data) is _dataset.ArrayDataset:
        members, single = data._data, len(data._data) == 1
    elif isinstance(array, (np.ndarray, mx.nd.NDArray)) or is_stored(array):
        members = [array]
    columns = [column for column in map(_column, members) if column is not None]
    kept = columns if len(columns) == len(members) else None
    return Pipeline(data, kept, single)


def numbered_source(pipeline: Pipeline, data: Any, looked_at: bool) -> Source:
    """Return the data set as a source with the same sample numbers.

    Unless the order looks at samples, a selection isn't made: not all sources have any, as a mix.
    """
    base, indices = pipeline.records, pipeline.indices
    arrays = [column.array for column in pipeline.columns or ()]
    if arrays and all(isinstance(array, np.ndarray) for array in arrays):
        base = ArraySource(tuple(arrays))
    if base is None or not (looked_at or indices is None):
        return MapSource(data)
    return base if indices is None else base.select(indices[: len(data)])


def _column(data: Any) -> Column | None:
    if type(data) in (mx.nd.NDArray, mx.np.ndarray):
        if data.stype != "default" or data.ctx.device_type == "gpu" or not data.shape:
            return None
        array = as_numpy(data)
        if array.ndim == 1 and type(data) is mx.nd.NDArray:
            array = array[:, np.newaxis]  # An NDArray's data[i] still has one axis.
        return Column(array, type(data))
    if type(data) in (list, range):
        return Column(data, np.ndarray)
    # Exact types only: subclasses, such as masked arrays, have special rows.
    if type(data) in (np.ndarray, np.memmap) and data.ndim and not data.dtype.hasobject:
        return Column(data, np.ndarray)  # Worker processes map a memory-mapped file themselves.
    if is_stored(data) and data.shape and not np.dtype(data.dtype).hasobject:
        return Column(Stored(data), np.ndarray)
    return None


# --- the numbers of samples ---


def integers(names: Any) -> NDArray[np.int64] | None:
    """Convert sample names to an integer array; None if they aren't integers."""
    try:
        numbers = np.asarray(names)
    except ValueError:  # Sequences of different lengths.
        return None
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        return None
    return numbers.astype(np.int64, copy=False)


def in_range(names: Sequence[Any] | NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Convert sample names, also negative ones, to row numbers; raise ``IndexError`` for others."""
    numbers = integers(names)
    if numbers is None:
        raise IndexError(
            f"samples of arrays and records must be named by integers, got {list(names)[:3]!r}: "
            "give a data set of your own, whose __getitem__ takes that"
        )
    wrong = numbers[(numbers < -size) | (numbers >= size)]
    if wrong.size:
        raise IndexError(f"sample {wrong[0]} was asked of a data set of {size}")
    return np.where(numbers < 0, numbers + size, numbers)


# --- record files of MXNet's data sets ---


def _image_source(data: Any) -> RecordSource | None:
    """Make a source of an ``ImageRecordDataset``, with the same results as MXNet.

    None for greyscale images, or if the libraries or the file are missing.
    """
    if data._flag != 1 or not all(map(find_spec, ("cv2", "simplejpeg"))):
        return None
    offsets = [data._record.idx[key] for key in data._record.keys]
    try:
        shard = Shard(data.filename, "recordio", False, Index(np.array(offsets, np.int64), None))
    except (OSError, OverflowError):  # No file has offsets of more than 63 bits.
        return None
    return RecordSource(RecordFiles.of([shard]), Images(None, {}))


# ``read_idx`` seeks in the file and then reads. Two threads that do so at once would get each
# other's records, without an error.
_read_idx = MXIndexedRecordIO.read_idx
_reading = Gate([("MXIndexedRecordIO", _read_idx)], thread_safe=False)


@functools.wraps(_read_idx)
def _read_alone(self: Any, idx: Any) -> Any:
    with _reading:
        return _read_idx(self, idx)


MXIndexedRecordIO.read_idx = _read_alone


def _shuffle_a_copy(kind: Any, name: str) -> None:
    """Have an augmenter shuffle a copy of its list in a loader: no sample depends on others."""
    called = kind.__call__

    @functools.wraps(called)
    def call_copy(self: Any, *arguments: Any) -> Any:
        own = self if current_place() is None else copy.copy(self)
        setattr(own, name, list(getattr(self, name)))
        return called(own, *arguments)

    kind.__call__ = call_copy


_shuffle_a_copy(mx.image.RandomOrderAug, "ts")
_shuffle_a_copy(mx.image.DetRandomSelectAug, "aug_list")
