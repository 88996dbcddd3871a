"""Plan of a Gluon loader: fetch, transform and batchify a batch by MXNet's rules.

Like every ``Plan``, a ``GluonPlan`` is a function of a batch's key alone. In the trainer's process,
a batch may hold NDArrays. In a worker process, it is written to the slot as NumPy arrays. In both
cases, it is a flat tuple of arrays and a ``Treedef``, which the loader converts for the user.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from mxnet.util import is_np_array, is_np_shape, np_array, set_np_shape

from adapters.alignment import aligned_empty
from adapters.batch.order import DrawnOrder, Order
from adapters.batch.plan import Allocate, Assembled, BatchKey, Plan
from adapters.batch.replacement import OnError, Replacements
from adapters.engine.threads import works_for
from adapters.errors import note
from adapters.generator_search import generators_used
from adapters.generators import (
    BATCH_TRANSFORM,
    COLLATE,
    OF_COLLATE,
    Place,
    call_with,
    generator,
    generator_argument,
)
from adapters.gluon.batchify import Treedef, batchify_default, is_known, packed
from adapters.gluon.ndarrays import as_ndarray, map_arrays, map_members
from adapters.gluon.pipeline import Pipeline, pipeline_for
from adapters.gluon.samplers import length_of
from adapters.gluon.samples import WHOLE_BATCH, Members, Request, Runner, seeded_batch
from adapters.gluon.stages import call
from adapters.seeding import seed
from adapters.user_code import name_of

_UNSEEDED: contextlib.nullcontext[frozenset[str]] = contextlib.nullcontext(frozenset())


@dataclass
class GluonPlan(Plan):
    """Pure function from key to batch for a Gluon data set."""

    order: Order | DrawnOrder
    pipeline: Pipeline
    data: Any = ()
    """The loader's data set, for its length."""
    batchify: Callable[[list[Any]], Any] | None = None
    """User's function from a list of samples to a batch; None for MXNet's."""
    draws: frozenset[str] = frozenset()
    semantics: tuple[bool, bool] = (False, False)
    """``(is_np_shape(), is_np_array())`` in the thread of the loader."""
    changes_between_epochs: bool = False
    seed: int = 0
    on_error: OnError = "raise"
    batch_transform: Callable[..., Any] | None = None
    thread_safe: bool | None = None
    seeded: bool = False
    """True to look for generators again in each pass, as a transform may be replaced."""
    begun: bool = False
    """True once a pass has begun."""

    def __post_init__(self) -> None:
        self._argument = generator_argument(self.batch_transform)
        self._batchify_argument = generator_argument(self.batchify)
        self._remote = False
        self._size = length_of(self.data)
        self._runner = Runner(self.pipeline, self.seed, isinstance(self.order, DrawnOrder))
        self._make_gates(
            [("dataset", each) for each in self.pipeline.users_code],
            [("batchify_fn", self.batchify), ("batch_transform", self.batch_transform)],
        )
        # MXNet's rules alone make batches; ``batchify`` is from this package, and uses NumPy.
        self._batches_itself = self.batchify is None and self.batch_transform is None
        self._collates = bool(getattr(self.batchify, "only_reads", False))
        foreign = self.batchify is not None and not self._collates
        self.calls_users_functions = foreign or bool(self.pipeline.users_code)

    def __getstate__(self) -> dict[str, Any]:
        """State for a worker process, without the data set."""
        return {**self.__dict__, "data": None, "_remote": True}

    # --- the plan ---

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
        if self.draws:
            drawn = ", ".join(sorted(self.draws))
            yield f"drawn from the global generators of {drawn}: seeded, except on threads"

    def prefetch(self, key: BatchKey, elsewhere: bool) -> None:
        """Make a source of records start to fetch a batch's samples."""
        records = self.pipeline.records
        if records is not None and isinstance(self.order, Order):
            numbers = self.pipeline.base_numbers(self.samples(key))
            records.prefetch(np.asarray(numbers, np.int64), elsewhere=elsewhere)
            if not elsewhere:
                self._prefetch(key, asked=True)

    def _prefetch(self, key: BatchKey, asked: bool = False) -> None:
        """Give the records a prefetch hint for later batches, in an order in blocks."""
        records, order = self.pipeline.records, self.order
        if records is not None and self.pipeline.indices is None and isinstance(order, Order):
            order.prefetch(key.order_arguments, records.prefetch_hint, asked)

    @property
    def only_decodes(self) -> bool:
        """True if the work is mainly image decoding, which releases the interpreter lock."""
        records = self.pipeline.records
        decodes = records is not None and records.decodes and records.leaves is not None
        return decodes and not self._runner.runs and self._batches_itself

    def begin_pass(self) -> None:
        """Take over the semantics and changes of the data set, whose arrays are waited for."""
        self.semantics = (is_np_shape(), is_np_array())
        if self.changes_between_epochs or not self.begun:
            self.pipeline = pipeline_for(self.data, self.batchify)
            if self.seeded:
                self.draws |= generators_used(*self.pipeline.users_code).possibly
            self.__post_init__()
        self.begun = True

    def batch(self, key: BatchKey, allocate: Allocate) -> Assembled:
        """Compute a batch, ``(*arrays, Treedef)``. Errors' notes name the sample and the batch."""
        names = self.samples(key)
        self._prefetch(key)
        # If user functions make the batch, the arrays of samples are not its memory yet.
        memory = allocate if self._batches_itself else aligned_empty
        try:
            if self._remote or works_for(self):
                self._enter_semantics()
            with self._gate, Place(self.seed, *key[:2]) as place, self._seeded(key) as draws:
                return self._made(Request(key, place, names, memory, draws))
        except BaseException as error:
            note(error, f"in batch {key.index} of epoch {key.epoch}")
            raise

    def wait_for(self, assembled: Assembled) -> None:
        """Wait for MXNet's engine, which computes asynchronously."""
        map_arrays(lambda array: array.wait_to_read(), assembled.batch[:-1], lists=True)

    def _enter_semantics(self) -> None:
        """Give a worker's thread the loader's NumPy semantics."""
        if self.semantics == (is_np_shape(), is_np_array()):
            return
        # `set_np` refuses np arrays without np shapes, and np shapes can't be turned off while np
        # arrays are on.
        shape, array = self.semantics
        np_array(False).__enter__()
        set_np_shape(shape)
        np_array(array).__enter__()

    def _seeded(self, key: BatchKey) -> contextlib.AbstractContextManager[frozenset[str]]:
        """Seed the process's generators for a batch, if they are used.

        Worker threads share them with the training loop, so they are left alone there.
        """
        if not self.draws or (works_for(self) and not self._remote):
            return _UNSEEDED
        return seeded_batch(self.draws, self.seed, key.epoch, key.index, not self._remote)

    def _made(self, request: Request) -> Assembled:
        samples = self._samples(request)
        if self._batches_itself:
            leaves, treedef = self._batchified(samples, request, self._remote)
        else:
            seed(request.draws, self.seed, *request.key[:2], WHOLE_BATCH)
            # The NumPy arrays of this package's functions become NDArrays.
            last = self.batch_transform
            ours = self._collates if last is None else hasattr(last, "on_own_batch")
            make = functools.partial(self._of_functions, samples, request)
            with self._batch_gate:
                leaves, treedef = packed(make, self._remote, "active" if ours else "numpy")
        return Assembled((*leaves, treedef), request.place.skipped)

    # --- samples ---

    def _samples(self, request: Request) -> Members:
        if self.on_error == "raise":
            return self._runner.made(request)
        with contextlib.suppress(Exception):
            return self._computed(request)
        # They are made one by one, with replacements for those that fail.
        samples: list[Any] = []
        size = sys.maxsize if self._size is None else self._size
        sample = functools.partial(self._sample, request)
        replacements = Replacements(self.on_error, size, request.key, request.place, sample)
        names = request.names
        for name in names.tolist() if isinstance(names, np.ndarray) else names:
            try:
                samples.append(sample(name, first=len(samples)))
            except BaseException as error:
                named = not isinstance(name, (int, np.integer))
                if self.on_error == "skip" and named and isinstance(error, Exception):
                    raise ValueError(
                        'on_error="skip" takes the sample with the next higher number, and '
                        f"batch_sampler names this one {name!r}: give a function as on_error"
                    ) from error
                samples.append(replacements.of(error, name))
        return Members([samples])

    def _computed(self, request: Request) -> Members:
        """Make samples, and wait for their NDArrays, so that errors of MXNet are raised here."""
        samples = self._runner.made(request)
        map_arrays(lambda array: array.wait_to_read(), samples.columns, lists=True)
        return samples

    def _sample(self, request: Request, name: Any, **changes: Any) -> Any:
        changed = dataclasses.replace(request, names=[name], allocate=np.empty, **changes)
        (sample,) = self._computed(changed).samples()
        return sample

    # --- from samples to a batch ---

    def _batchified(
        self, samples: Members, request: Request, remote: bool
    ) -> tuple[list[Any], Treedef]:
        names = request.names
        members, single = samples.split(names)
        columns = [each if isinstance(each, list) else each.array for each in members]
        records = self.pipeline.records
        remedy = records.remedy if records is not None and list in map(type, columns) else None
        return batchify_default(columns, single, remote, request.allocate, names, remedy)

    def _of_functions(self, samples: Members, request: Request) -> Any:
        epoch, index = request.key[:2]
        function = self.batch_transform
        own = getattr(function, "on_own_batch", None)  # This package's functions use NumPy.
        if self.batchify is not None:
            request.place.batch(COLLATE)
            rng_of = functools.partial(generator, self.seed, epoch, index, OF_COLLATE)
            alone = functools.partial(self._alone, request)
            batchify = self._for_samples(self.batchify, request.key, alone)
            batch = call_with(rng_of, self._batchify_argument, batchify, samples.samples())
            if own is not None:
                batch = map_arrays(lambda array: array.asnumpy(), batch)
            elif function is not None and self._collates:
                batch = map_members(
                    lambda leaf: as_ndarray(leaf, is_np_array()) if is_known(leaf) else leaf, batch
                )
        else:
            leaves, treedef = self._batchified(samples, request, remote=own is not None)
            batch = treedef.built(leaves, None if own is not None else is_np_array())
        if function is None:
            return batch
        rng_of = functools.partial(generator, self.seed, epoch, index, BATCH_TRANSFORM)
        function = functools.partial(call, function) if own is None else own
        request.place.batch(BATCH_TRANSFORM)
        try:
            transformed = call_with(rng_of, self._argument, function, batch)
            if transformed is None:
                raise ValueError("batch_transform must return a batch, got None")
        except BaseException as error:
            note(error, "in batch_transform")
            raise
        return transformed

    def _alone(self, request: Request, name: Any) -> Any:
        """Make a single sample as in epoch 0."""
        key = BatchKey(0, 0)
        with Place(self.seed, 0, 0) as place, self._seeded(key) as draws:
            return self._sample(request, name, key=key, place=place, draws=draws)
