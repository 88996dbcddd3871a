"""``gluon_loader``: a ``gluon.data.DataLoader`` that keeps up.

::

    iter(loader)       an Iteration: a pass, which is the next epoch
    its first next     draws the order and starts a stream of the engine
    each next          (*arrays, Skeleton) of the stream -> NDArrays, on their device

Each pass is an epoch of its own, one that is abandoned too. The state is that of the latest pass,
so that a loader that loads it elsewhere continues just that pass. It is counted in one of two ways:

    {"epoch": e, "samples": n}   the first n samples of the global order, by all shards together
    {"epoch": e, "batch": i}     i batches of a loader like this one

The first is independent of batch size and shards, so that other shards may continue. It is the
state of a loader with a shard; the second one is that of all others, and of what rolls over. One
thread at a time may use a loader; each of its iterators may have a thread of its own.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Literal

import mxnet as mx
import numpy as np
from mxnet.gluon.data.dataloader import default_batchify_fn
from mxnet.util import is_np_array, is_np_shape

from adapters import replaying, viewing
from adapters.arguments import batches_of, check_integer, position_of, samples_of, unit_of
from adapters.batch.arranging import blocks_of
from adapters.batch.blocks import Blocks
from adapters.batch.key import WHOLE, Continuation
from adapters.batch.order import DrawnOrder, Order
from adapters.batch.replacement import OnError
from adapters.bytecode import generators_used
from adapters.engine import Engine, Waits
from adapters.generators import DECODE, Place, generator, generator_argument
from adapters.gluon.arguments import check_arguments
from adapters.gluon.devices import mover
from adapters.gluon.explanation import explanation
from adapters.gluon.iteration import Iteration, Pass
from adapters.gluon.pipeline import Pipeline, PythonOp, numbered_source, pipeline_of
from adapters.gluon.plan import GluonPlan
from adapters.gluon.recorddatasets import make_reading_atomic
from adapters.gluon.samplers import (
    EpochBatchSampler,
    OrderBatchSampler,
    batch_sampler_of,
    drawn_batches,
    fitted,
    length_of,
    obstacle_to_replay,
    rolls_over,
    sampler_twin,
    tell_epoch,
)
from adapters.gluon.samples import FIRST_RUN
from adapters.gluon.workers import settings_of
from adapters.ranks import ShardArgument
from adapters.sources import as_source, holds_stored, open_guessed
from adapters.sources.origin import Origin

_open: weakref.WeakSet[Engine] = weakref.WeakSet()


class DataLoader(mx.gluon.data.DataLoader):  # type: ignore[misc]
    """A ``gluon.data.DataLoader`` with the same arguments and batches, and without its faults.

    ``gluon_loader`` is another name of it. Each iterator over it is a pass of its own, by one
    consumer, and the next epoch; there may be several at a time. ``close``, or the end of a
    ``with`` block, ends the workers; batches that are held stay valid. A subclass may override
    ``__iter__`` and ``__len__``.

    Args:
        dataset: A Gluon data set, an array, a tuple of arrays of equal length (those of h5py and
            zarr stay on the disk), a source, as ``open_records``, ``open_images``, ``split`` and
            ``concatenate`` return it, the path of a record file, of a glob of several, or of a
            folder with a folder of images per class, or any object with
            ``__len__`` and ``__getitem__``. A path's records are images with labels where the first
            one is, see ``open_records``.
        batch_size: Samples in a batch.
        shuffle: A new order in every pass over the loader. ``"blocks"``, or ``Blocks(...)``, reads
            large blocks of the data set and mixes several at a time.
        sampler: Gives the numbers of the samples; excludes ``shuffle``.
        last_batch: ``"keep"`` (the default), ``"discard"`` or ``"rollover"`` what doesn't fill a
            batch.
        batch_sampler: Gives lists of sample numbers; excludes the four before.
        batchify_fn: Makes a batch of a list of samples, as ``adapters.pad()`` does for those of
            unequal lengths; MXNet's default otherwise.
        num_workers: ``"auto"`` measures the first batches and decides; 0 computes each batch when
            it is asked for.
        pin_memory: Give batches in pinned memory. ``"auto"``: on their way to a GPU in ``ctx``.
        pin_device_id: The device that memory is pinned for.
        prefetch: Batches that may be ready ahead; 2 per worker otherwise.
        thread_pool: Workers are threads (True), processes (False), or whatever fits: threads where
            the work is done a batch at a time, processes for functions of the user's own. Processes
            that were asked for by a number have the data set as it was when they started. Threads
            share the generators ``random``, ``numpy.random`` and MXNet's, with each other and with
            the training loop: where a function of the user's own names one of these, its batches
            are made one at a time, when they are asked for, as with ``num_workers=0``, and a line
            in the log says so. It costs all that threads would have gained; processes are faster.
            What other libraries draw on threads is not seeded.
        timeout: Seconds after which a batch that workers haven't made is an error. New processes
            have a minute more.
        ctx: Move the batches to this device, the next one while this one is used.
        seed: Of the order and of all that is random, also of what transforms draw from
            ``random``, ``numpy.random`` and MXNet's generator. None takes one from
            ``numpy.random`` when the loader is made, a single draw, if anything is random:
            ``numpy.random.seed`` before that line repeats all passes of the loader.
        shard: ``(index, count)``: take that part of the one global order. All shards have the same
            number of samples; up to ``count - 1`` samples are left out per pass. A kvstore: that of
            its ``rank`` of ``num_workers``. ``"auto"``: the part of this process, as a framework or
            the launcher says, see docs/scale.md; found out here, or else at the first use. With
            ``shuffle``, all need the same ``seed``. Excludes ``sampler`` and ``batch_sampler``.
        on_error: For a sample that can't be fetched or transformed: ``"raise"``; ``"skip"``, take
            the sample with the next higher number that can be (counted, and logged at the end of
            the pass); or ``on_error(exception, sample_number)`` returns a finished sample.
        batch_transform: ``batch_transform(batch)`` or ``batch_transform(batch, rng)`` is given what
            ``batchify_fn`` has made, MXNet's default too, and returns what the loop gets. ``rng``
            is a ``numpy.random.Generator`` that depends on the seed, the epoch and the index of the
            batch alone. Workers run it.
        weights: Of each sample: samples are drawn with replacement, as often as weights say, as
            many in a pass as there are; see ``Weighted``, and ``class_balanced(labels)``. Excludes
            ``sampler`` and ``batch_sampler``.
        bucket_by: The length of each sample: those of a batch, of all shards together, have similar
            ones; see ``Buckets``. Excludes the same.
        thread_safe: Whether several threads may run your code (data set, transforms,
            ``batchify_fn``, ``batch_transform``) at once. None: ``thread_pool=True`` declares that
            they may, as with MXNet's loader; otherwise each object may say so by an attribute
            ``thread_safe``. Code that says nothing runs in one thread at a time.

    Raises:
        TypeError: A data set without length or random access, an argument of the wrong type.
        ValueError: Arguments that exclude each other, or out of range.

    ``state_dict`` is two integers, the epoch and the batch that comes after the last one that the
    latest pass has given to the loop. A loader with that state, in a new process, with whatever
    workers, goes on there, with the same batches: ``load_state_dict`` makes the next pass start
    there, and the passes after it are whole. That takes a ``seed`` where anything is random. After
    a ``break``, a plain new pass is the next epoch, as with MXNet's loader; the state still names
    the batch that would have come.

    A sampler of the user's own is iterated over from its start and what came before is let go, so
    it must give the same numbers again. One that has a ``set_epoch`` is told the number of the next
    epoch by ``set_epoch`` and ``load_state_dict``, and whenever a pass has ended or was abandoned;
    what it is told by somebody else after that counts.

    While iterating, an exception in the data set, a transform or ``batchify_fn`` arrives as its own
    type, with the number of the sample in its notes; ``WorkerError`` says that worker processes die
    again and again over one batch; ``multiprocessing.TimeoutError`` that ``timeout`` is over.

    Example:
        >>> import numpy as np
        >>> from adapters import gluon_loader
        >>> loader = gluon_loader((np.zeros((10, 3), "float32"), np.arange(10)), batch_size=4)
        >>> [data.shape for data, label in loader]
        [(4, 3), (4, 3), (2, 3)]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool | Literal["blocks"] | Blocks = False,
        sampler: Any = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int | Literal["auto"] = "auto",
        pin_memory: bool | Literal["auto"] = "auto",
        pin_device_id: int = 0,
        prefetch: int | None = None,
        thread_pool: bool | Literal["auto"] = "auto",
        timeout: float = 120,
        *,
        ctx: Any = None,
        seed: int | None = None,
        shard: tuple[int, int] | Literal["auto"] | Any = None,
        on_error: OnError = "raise",
        batch_transform: Callable[..., Any] | None = None,
        weights: Any = None,
        bucket_by: Any = None,
        thread_safe: bool | None = None,
    ) -> None:
        if holds_stored(dataset):
            dataset = as_source(dataset)
        # MXNet's own constructor would start a pool.
        check_arguments(
            dataset=dataset,
            batch_size=batch_size,
            shuffle=shuffle,
            batchify_fn=batchify_fn,
            num_workers=num_workers,
            pin_memory=pin_memory,
            prefetch=prefetch,
            thread_pool=thread_pool,
            timeout=timeout,
            ctx=ctx,
            seed=seed,
            shard=shard,
            on_error=on_error,
            batch_transform=batch_transform,
            thread_safe=thread_safe,
        )
        make_reading_atomic()
        if isinstance(dataset, (str, os.PathLike)):
            dataset = open_guessed(dataset)
        elif isinstance(dataset, tuple) and not hasattr(dataset, "_fields"):
            dataset = mx.gluon.data.ArrayDataset(*dataset)
        pipeline = _prepared(pipeline_of(dataset), batchify_fn)
        foreign = batchify_fn is not None and not getattr(batchify_fn, "only_reads", False)
        own_code = [*pipeline.python_code, *([batchify_fn] if foreign else [])]
        used = generators_used(*own_code, *filter(callable, (batch_transform, on_error)))
        draws = pipeline.draws or generator_argument(batch_transform) is not None
        self._random, self._seeded = draws or bool(used.possibly), seed is not None
        orders = functools.partial(
            batch_sampler_of,
            len(dataset),
            batch_size,
            shuffle,
            sampler,
            last_batch,
            batch_sampler,
            seeded=self._seeded,
            source=numbered_source(pipeline, dataset, blocks_of(shuffle) is not None),
            weights=weights,
            bucket_by=bucket_by,
            tolerant=on_error != "raise",
        )
        self._shard = ShardArgument(shard)
        # What isn't known to be random is the same in each loader without a seed, so that one that
        # is resumed is exact.
        if seed is None and (self._random or shuffle or weights is not None):
            seed = np.random.randint(1 << 31)
        self._orders = functools.partial(orders, seed=int(seed or 0))
        self._batch_sampler = self._orders(shard=self._shard.requested)
        if seed is None and getattr(self._batch_sampler, "is_random", False) is True:  # A mix.
            seed = np.random.randint(1 << 31)
            self._orders = functools.partial(orders, seed=int(seed))
            self._batch_sampler = self._orders(shard=self._shard.requested)
        ahead = isinstance(self._batch_sampler, OrderBatchSampler)
        self._plan = GluonPlan(
            self._batch_sampler.order if ahead else DrawnOrder(batch_size or 1),
            pipeline,
            dataset,
            batch_transform=batch_transform,
            seed=int(seed or 0),
            on_error=on_error,
            batchify=fitted(self._batch_sampler, batchify_fn),
            used=used.possibly,
            semantics=(is_np_shape(), is_np_array()),
            own_order=isinstance(self._batch_sampler, EpochBatchSampler),
            thread_safe=True if thread_safe is None and thread_pool is True else thread_safe,
        )
        # A function of whole batches alone is no reason for processes, unless it draws.
        own = bool(own_code or used.possibly)
        self._settings = settings_of(
            self._plan, num_workers, thread_pool, prefetch, timeout, own, used
        )
        # The data set may change between passes, but for processes that were asked for: as in
        # MXNet, these have it as it was.
        self._plan.live = not self._settings.use_multiprocessing
        self._dataset = dataset
        self._batchify_fn = batchify_fn or default_batchify_fn  # For subclasses.
        self._move = mover(ctx, pin_memory, pin_device_id)
        self._next, self._continuation = (0, 0), WHOLE
        self._latest: Pass | None = None
        self._without_batches = False  # The next pass: of a training that has ended.
        self._engine = Engine(self._plan, self._settings)
        _open.add(self._engine)

    def _settled(self) -> DataLoader:
        """Itself, with the shard that it has from now on."""
        if self._shard.settle():  # Which is before anything was asked for.
            self._batch_sampler = self._orders(shard=self._shard.requested)
            if not isinstance(self._plan.order, DrawnOrder):
                self._plan.order = self._batch_sampler.order
        return self

    def __iter__(self) -> Iterator[Any]:
        if self._without_batches:
            self._without_batches = False
            return iter(())
        self._settled()._shard.notice()
        return Iteration(self)

    def __len__(self) -> int:
        """Batches in a pass: in the latest one, or the next when that has ended."""
        return len(self._settled()._batch_sampler)

    def explain(self) -> None:
        """Print which way the samples take, and why: a line for each part of the data set."""
        print("\n".join(explanation(self._settled()._plan, self._engine, self._batch_sampler)))

    @property
    def waits(self) -> Waits:
        """How long the loop waited for each batch; MXNet may compute on meanwhile."""
        return self._engine.waits

    def refresh(self) -> None:
        """Nothing to do, unlike in MXNet: each pass starts anew."""

    def clean(self) -> None:
        """Nothing to do, unlike in MXNet: no pass starts before its first batch is asked for."""

    # --- epoch and state ---

    @property
    def epoch(self) -> int:
        """The number of the latest pass, from 0; of the next one when that has ended."""
        return self._position[0]

    def set_epoch(self, epoch: int) -> None:
        """Have the next pass be that of ``epoch``; a pass that is under way is not changed."""
        check_integer("epoch", epoch, 0)
        self._move_to(int(epoch), 0)

    def state_dict(self) -> dict[str, int]:
        """Where the latest pass stands: two integers, ``{"epoch": e, "batch": i}``.

        ``i`` is the batch that comes next. With ``shard``, the state is ``{"epoch": e, "samples":
        n}``, the samples that all shards together have consumed in this pass. It is the same on
        every shard, and any number of shards goes on from there, with any ``batch_size``: each
        sample that is left comes once, up to equal lengths of the shards. With
        ``last_batch="rollover"`` it has ``"batch"`` all the same, and equal shards alone can go on.
        With ``bucket_by`` and ``shuffle``, shards go on whose batches make as many samples
        together, which the state says: ``{"epoch": e, "batch of 64": i}``.

        Raises:
            ValueError: Nobody can go on there, as something is random and there is no ``seed``, or
                as it depends on the passes before.
        """
        epoch, batch = self._settled()._position
        self._check_replay("state_dict", epoch, batch)
        goes_on = self._continuation.covers(epoch, batch)
        if self._counts_samples and (goes_on or self._shard.requested is not None):
            origin = self._continuation.origin if goes_on else 0
            return {"epoch": epoch, "samples": self._batch_sampler.order.consumed(batch, origin)}
        sampler = self._batch_sampler
        grouped = isinstance(sampler, OrderBatchSampler) and not sampler.order.elastic
        if grouped and batch and self._shard.requested is not None:
            return {"epoch": epoch, unit_of(sampler.order.consumed(1)): batch}
        return {"epoch": epoch, "batch": batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Have the next pass start at that batch; the passes after it are whole again.

        Args:
            state: Of a loader of the same samples, with the same ``shuffle`` and ``seed``. One with
                ``"samples"`` may be of other shards and another ``batch_size``.

        Raises:
            ValueError: Not a state of a loader of this length; or nobody can go on there, see
                ``state_dict``.
        """
        sampler = self._settled()._batch_sampler
        rest = WHOLE
        if self._counts_samples and (at := samples_of(state, sampler.order.size, "loader")):
            epoch, samples = at
            continued = sampler.order.continuation(epoch, samples) if samples else WHOLE
            epoch, rest = (epoch + 1, WHOLE) if continued is None else (epoch, continued)
            batch = rest.step
        else:
            told = None
            if isinstance(sampler, OrderBatchSampler):
                order = sampler.order
                told = batches_of(state, order.consumed(1), order.size, "loader")
            epoch, batch = told or position_of(
                state, lambda epoch: length_of(sampler, epoch), "loader"
            )
            if batch and self._shard.requested is not None and told is None:
                self._shard.warn_of_batches(state, sampler.order.consumed(1), self._counts_samples)
            if told and batch and batch >= sampler.count(epoch):
                epoch, batch = epoch + 1, 0  # What is left doesn't fill all shards.
        self._check_replay("load_state_dict", epoch, batch)
        self._move_to(epoch, batch, rest)

    @property
    def _position(self) -> tuple[int, int]:
        """(epoch, batch) of the batch that comes after the last one of the latest pass."""
        return self._latest.position if self._latest is not None else self._next

    @property
    def _counts_samples(self) -> bool:
        """Whether what a pass has given is known to be the beginning of a global order."""
        sampler = self._batch_sampler
        return isinstance(sampler, OrderBatchSampler) and sampler.order.elastic

    def _rest(self, epoch: int, state: Any) -> Continuation:
        """How a pass went on that a batch of shall be replayed."""
        sampler = self._batch_sampler
        if isinstance(sampler, OrderBatchSampler):
            return replaying.continuation_of(
                self._continuation, sampler.order, epoch, state, "loader"
            )
        if state is not None:
            position_of(state, lambda epoch: length_of(sampler, epoch), "loader")
        return WHOLE

    def _move_to(self, epoch: int, batch: int, continuation: Continuation = WHOLE) -> None:
        self._next, self._latest = (epoch, batch), None
        self._continuation = continuation
        tell_epoch(self._batch_sampler, epoch)

    @property
    def _obstacle(self) -> str | None:
        """Why nobody can compute a batch again; None where anybody can."""
        obstacle = obstacle_to_replay(self._batch_sampler, self._seeded)
        if self._random and not self._seeded and obstacle is None:
            return "the seed of what transforms draw is drawn from numpy.random: give seed=..."
        return obstacle

    def _check_replay(self, method: str, epoch: int, batch: int) -> None:
        obstacle = self._obstacle
        begins = not batch and not (epoch and rolls_over(self._batch_sampler))
        if obstacle is not None and not begins:
            raise ValueError(
                f"{method}: a pass can't be continued at batch {batch} of epoch {epoch}, as "
                f"{obstacle}"
            )

    # --- once more ---

    def replay(
        self, epoch: int, batch: int, *, state: dict[str, int] | None = None
    ) -> replaying.Replay:
        """That very batch once more, without a log: ``print`` it, or write its ``sheet(path)``.

        Args:
            epoch: Of the batch, from 0.
            batch: Its number in the pass, from its end where negative.
            state: What ``load_state_dict`` was given in the middle of that pass, where it went on
                with other shards or another ``batch_size``. Not needed in the loader that did.

        Raises:
            IndexError: The pass has no such batch.
            ValueError: Nobody can compute it again, see ``state_dict``; or it came before the
                state, of batches or shards of another size.
        """
        check_integer("epoch", epoch, 0)
        check_integer("batch", batch, None)
        if (obstacle := self._settled()._obstacle) is not None:
            raise ValueError(f"replay: no batch can be computed again, as {obstacle}")
        epoch, plan, rest = int(epoch), self._plan, self._rest(int(epoch), state)
        with self._twin() as twin:
            tell_epoch(twin._batch_sampler, epoch)
            index, names = twin._samples(epoch, int(batch), rest)
            try:
                numbers = np.array([int(name) for name in names], np.int64)
            except (TypeError, ValueError):
                raise ValueError(
                    f"batch_sampler must give numbers for a batch to be replayed, got {names!r}"
                ) from None
            twin._move_to(epoch, index, rest)
            made = next(iter(twin))
        records = plan.pipeline.records
        origins = [
            Origin()
            if records is None
            else records.origin(number, generator(plan.seed, epoch, number, DECODE))
            for number in numbers.tolist()
        ]

        def fetched(number: int) -> Any:
            with Place(plan.seed, epoch, index) as place:
                place.sample(number, FIRST_RUN)
                return plan.data[number]

        return replaying.Replay(epoch, index, made, numbers, origins, fetched)

    def _samples(self, epoch: int, index: int, rest: Continuation) -> tuple[int, Any]:
        """A batch's number, from 0, and what its samples are called.

        Raises:
            IndexError: The pass has no such batch.
            ValueError: It came before the rest.
        """
        sampler, order = self._batch_sampler, self._plan.order
        count = length_of(sampler, epoch)
        if count is None and index < 0:
            raise IndexError(
                f"batch must be >= 0 where the sampler of the loader has no length, got {index}"
            )
        if count is not None and not -count <= index < count:
            raise IndexError(f"batch must be in range({-count}, {count}), got {index}")
        if index < 0 and count is not None:
            index += count
        if isinstance(order, Order):
            key = replaying.key_of(rest, order, epoch, index)
            return index, order.batch(*key.place)
        names: Any = next(drawn_batches(sampler, epoch, index), None)
        if names is None:
            raise IndexError(f"batch must be one of the pass, got {index}: it has fewer")
        return index, names

    def peek(self, batches: int = 1) -> viewing.Peek:
        """The first samples of a pass's first batches, to be looked at; no pass is begun for it.

        A notebook shows a contact sheet, or a table where there are no images; ``print`` shows a
        table, ``.save("sheet.png")`` writes the sheet.
        """
        check_integer("batches", batches, 1)
        twin = self._twin()
        try:
            return viewing.Peek(itertools.islice(twin, int(batches)))
        finally:
            twin.close()

    def _twin(self) -> DataLoader:
        """The same loader once more, with workers of its own, that draws nothing of the user's."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self._settled().__dict__)
        twin._batch_sampler = sampler_twin(self._batch_sampler)
        twin._next, twin._latest, twin._continuation = (0, 0), None, WHOLE
        twin._engine = Engine(self._plan, self._settings)
        _open.add(twin._engine)
        return twin

    # --- the end ---

    def close(self) -> None:
        """End the workers and free what they shared; batches that are held stay valid."""
        self._engine.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a loader has workers of its own and can't be copied or pickled: make another one of "
            "its data set"
        )

    def __del__(self) -> None:
        # No weakref.finalize, which would keep the plan, and with it whoever's methods are in it.
        if (engine := getattr(self, "_engine", None)) is not None:
            engine.close()


gluon_loader = DataLoader


def _prepared(pipeline: Pipeline, batchify: Any) -> Pipeline:
    """Without the arrays where the samples are asked for one by one all the same."""
    asked = isinstance(pipeline.ops[0], PythonOp) if pipeline.ops else batchify is not None
    if asked:
        pipeline.columns = None
    return pipeline


def _close_all() -> None:
    for engine in list(_open):
        engine.end_with_main_thread()


# Before the executors of concurrent.futures are taken down, which atexit is too late for.
getattr(threading, "_register_atexit", None) and threading._register_atexit(_close_all)  # type: ignore[attr-defined]
