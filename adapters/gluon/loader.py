"""``gluon_loader``: a replacement for ``gluon.data.DataLoader``.

Each pass is a new epoch, even if the previous pass was abandoned. The state is that of the latest
pass. Only one thread at a time may use a loader, but each of its iterators may be used in a
different thread.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import mxnet as mx
import numpy as np
from mxnet.gluon.data.dataloader import default_batchify_fn
from mxnet.util import is_np_array, is_np_shape

from adapters import arguments
from adapters.alignment import aligned_empty
from adapters.batch.arranging import blocks_of, check_shuffle, order_of
from adapters.batch.blocks import Blocks
from adapters.batch.order import DrawnOrder, Order, replayed_epoch, replayed_key
from adapters.batch.plan import WHOLE, BatchKey, ResumedEpoch
from adapters.batch.replacement import OnError
from adapters.engine import Engine, Waits, raise_as_itself
from adapters.generator_search import generators_used
from adapters.generators import DECODE, generator, generator_argument
from adapters.gluon import samplers
from adapters.gluon.arguments import check_dataset, check_device, check_workers, settings_of
from adapters.gluon.iteration import Iteration, mover
from adapters.gluon.pipeline import integers, numbered_source, pipeline_for
from adapters.gluon.plan import GluonPlan
from adapters.gluon.samples import FIRST_RUN
from adapters.ranks import ShardArgument
from adapters.seeding import seeded
from adapters.sources import Source, as_source
from adapters.sources.records import open_guessed
from adapters.sources.source import Origin
from adapters.sources.stored import is_sparse, is_stored
from adapters.viewing.peek import Peek

if TYPE_CHECKING:
    from adapters.replaying import Replay

_GLOBAL = frozenset({"numpy", "random"})


class DataLoader(mx.gluon.data.DataLoader):  # type: ignore[misc]
    """Replacement for ``gluon.data.DataLoader`` with the same arguments and batches.

    ``gluon_loader`` is another name of this class. Each iterator is a pass over the next epoch, for
    one consumer; several may exist at a time. ``close``, or the end of a ``with`` block, stops the
    workers; delivered batches stay valid. A subclass may override ``__iter__`` and ``__len__``.

    Args:
        dataset: A Gluon data set; an array, or a tuple of arrays of equal length (arrays of h5py
            and zarr stay on disk); a source, from ``open_records``, ``open_images``, ``split`` or
            ``concatenate``; the path or glob of record files, or the path of a folder with one
            folder of images per class; or any object with ``__len__`` and ``__getitem__``. With a
            sampler, ``__getitem__`` is enough.
        batch_size: Samples in a batch.
        shuffle: Shuffle the samples in every pass. ``"blocks"`` or ``Blocks(...)`` reads large
            blocks of the data set and mixes several at a time.
        sampler: Iterable of sample numbers; excludes ``shuffle``. A sample that comes again in a
            pass gets the same random numbers.
        last_batch: Handling of the samples that don't fill a batch: ``"keep"`` (default),
            ``"discard"`` or ``"rollover"``.
        batch_sampler: Iterable of lists of sample numbers; excludes the previous four.
        batchify_fn: ``batchify_fn(samples)``, or with ``rng``, returns the batch of a list, such as
            ``adapters.pad()`` for samples of unequal lengths; None for MXNet's default.
        num_workers: Number of workers. ``"auto"`` measures the first batches and decides; 0
            computes each batch when it is requested.
        pin_memory: Return batches in pinned memory. ``"auto"``: pin batches that are copied to a
            GPU in ``ctx``.
        pin_device_id: Device for pinned memory.
        prefetch: Limit of batches that are ready ahead; by default 2 per worker.
        thread_pool: Use threads (True) or processes (False) as workers. ``"auto"`` uses threads if
            the work is done a batch at a time, and processes for your own functions. A fixed number
            of processes sees the data set as it was when they started. If your own function names
            ``random``, ``numpy.random`` or MXNet's generator, which threads share with the training
            loop, batches are computed when they are requested, and a line is logged.
        timeout: Seconds to wait for a batch from the workers before an error. New processes have a
            minute more.
        ctx: Device to move the batches to; None for the CPU, whatever the current context is. The
            next batch is copied while one is used.
        seed: Seed of the order and of all random numbers, including those that transforms draw from
            ``random``, ``numpy.random`` and MXNet's generator. With None, if anything is random, a
            seed is drawn from ``numpy.random`` when the loader is made.
        shard: ``(index, count)``: take that part of the one global order. All shards have the same
            number of samples; up to ``count - 1`` samples are left out per pass. A kvstore: take
            the part of its ``rank`` among its ``num_workers``. ``"auto"``: the part of this
            process, see docs/scale.md, determined here or at the first use. With ``shuffle``, all
            shards need the same ``seed``. Excludes ``sampler`` and ``batch_sampler``.
        on_error: Handling of a sample that can't be fetched or transformed. ``"raise"``; ``"skip"``
            to take the sample with the next higher number that can be read (counted, and logged at
            the end of the pass); or ``on_error(exception, sample_number)``, which returns a
            finished sample.
        batch_transform: ``batch_transform(batch)`` or ``batch_transform(batch, rng)``, called by
            the workers with the result of ``batchify_fn`` or MXNet's default; returns the batch for
            the loop. ``rng`` is a ``numpy.random.Generator`` that depends only on the seed, the
            epoch and the index of the batch.
        weights: Weight of each sample. Samples are drawn with replacement in proportion to their
            weights, as many per pass as there are; see ``Weighted`` and
            ``class_balanced(labels)``. Excludes ``sampler`` and ``batch_sampler``.
        bucket_by: Length of each sample. Batches, over all shards together, are made of samples of
            similar length; see ``Buckets``. Excludes ``sampler`` and ``batch_sampler``.
        thread_safe: True if several threads may run your code (data set, transforms,
            ``batchify_fn``, ``batch_transform``) at once. None: ``thread_pool=True`` declares it,
            or an attribute ``thread_safe`` of each object. Other code runs in one thread at a time.

    Raises:
        TypeError: The data set has no length or no random access, or an argument has the wrong
            type.
        ValueError: Arguments exclude each other or are out of range.

    A loader that loads the ``state_dict()`` of another one resumes there with the same batches,
    also in a new process and with other workers. A ``seed`` is needed if anything is random. Your
    own sampler must give the same numbers again. Its ``set_epoch``, if it has one, is called with
    the next epoch after each finished or abandoned pass, and by the loader's ``set_epoch`` and
    ``load_state_dict``. After a ``break``, a new pass is the next epoch; the state still names the
    next batch of the abandoned pass.

    While iterating, an exception in the data set, a transform or ``batchify_fn`` arrives as its own
    type, with the number of the sample in its notes. ``WorkerError`` is raised if worker processes
    repeatedly die over the same batch, ``multiprocessing.TimeoutError`` after ``timeout``.

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
        members = dataset if type(dataset) is tuple else (dataset,)
        if any(is_stored(member) or is_sparse(member) for member in members):
            dataset = as_source(dataset)
        check_dataset(dataset, sampler is None and batch_sampler is None)
        if isinstance(shuffle, str):  # Any other true value shuffles, as in MXNet.
            check_shuffle(shuffle)
        if batch_size is not None:
            batch_size = arguments.check_integer("batch_size", batch_size, 1)
        if seed is not None:
            seed = arguments.check_integer("seed", seed, 0, " or None")
        if not isinstance(shard, mx.kvstore.KVStoreBase):
            arguments.check_shard(shard)
        arguments.check_on_error(on_error)
        arguments.check_thread_safe(thread_safe)
        arguments.check_function("batchify_fn", batchify_fn, "samples")
        arguments.check_function("batch_transform", batch_transform, "batch")
        check_workers(num_workers, prefetch, thread_pool, timeout)
        check_device(ctx, pin_memory, pin_device_id)
        # MXNet's own constructor isn't called: it would start a pool.
        if isinstance(dataset, (str, os.PathLike)):
            dataset = open_guessed(dataset)
        elif isinstance(dataset, tuple) and all(type(each) is tuple for each in dataset):
            dataset = list(dataset)  # Of samples, not of arrays.
        elif isinstance(dataset, tuple) and not hasattr(dataset, "_fields"):
            dataset = mx.gluon.data.ArrayDataset(*dataset)
        pipeline = pipeline_for(dataset, batchify_fn)
        functions = filter(callable, (batchify_fn, batch_transform, on_error))
        used = generators_used(*pipeline.users_code, *functions)
        draws = pipeline.draws or generator_argument(batch_transform) is not None
        self._random, self._seeded = draws or bool(used.possibly), seed is not None
        self._shard = ShardArgument(shard)
        ours = {"shard": self._shard.requested, "weights": weights, "bucket_by": bucket_by}
        self._batch_sampler = samplers.given_sampler(
            batch_size, shuffle, sampler, last_batch, batch_sampler, ours
        )
        looked_at = blocks_of(shuffle) is not None or weights is not None or bucket_by is not None
        sampled = self._batch_sampler is not None
        source = None if sampled else numbered_source(pipeline, dataset, looked_at)
        # Without known randomness, every loader without a seed uses 0, so that resuming is exact.
        mixes = source is not None and type(source).arranged is not Source.arranged
        if seed is None and (self._random or shuffle or weights is not None or mixes):
            seed = np.random.randint(1 << 31)
        order: Order | DrawnOrder = DrawnOrder(batch_size or 1)
        batchify = batchify_fn
        if self._batch_sampler is None:
            assert batch_size is not None
            if self._shard.requested is not None:
                arguments.check_shard_size(len(dataset), self._shard.part)
            known = order_of(
                len(dataset),
                batch_size,
                shuffle,
                seed or 0,
                last_batch == "discard",
                self._shard.part,
                source=source,
                weights=weights,
                bucket_by=bucket_by,
            )
            rollover = last_batch == "rollover"
            kind = samplers.RolloverBatchSampler if rollover else samplers.OrderBatchSampler
            self._batch_sampler = kind(known)
            if self._shard.requested and not self._seeded and self._batch_sampler.is_random:
                raise ValueError(
                    f"shard needs a seed with a random order, got shard={self._shard.requested} "
                    "and seed=None: without one, each process shuffles in an order of its own; "
                    "give all of them the same seed"
                )
            batchify = known.fitted(batchify_fn)  # With lengths to pad to, in buckets.
            order = order if rollover else known
        self._plan = GluonPlan(
            order,
            pipeline,
            dataset,
            batch_transform=batch_transform,
            seed=seed or 0,
            on_error=on_error,
            batchify=batchify,
            draws=used.possibly,
            semantics=(is_np_shape(), is_np_array()),
            thread_safe=True if thread_safe is None and thread_pool is True else thread_safe,
            seeded=self._seeded,
        )
        self._settings = settings_of(self._plan, num_workers, thread_pool, prefetch, timeout, used)
        # The data set may change between passes. As in MXNet, requested processes don't see that.
        self._plan.changes_between_epochs = not self._settings.use_multiprocessing
        self._dataset = dataset
        # For subclasses, as MXNet's loader has them.
        self._batchify_fn = batchify_fn or default_batchify_fn
        self._num_workers = 0 if num_workers == "auto" else max(0, num_workers)
        self._prefetch = 2 * self._num_workers if prefetch is None else prefetch
        self._pin_memory, self._pin_device_id = pin_memory is True, pin_device_id
        self._thread_pool, self._worker_pool, self._timeout = thread_pool is True, None, timeout
        self._move = mover(ctx, pin_memory, pin_device_id)
        # A batch is transferred while the previous one is used.
        self._copies_ahead = ctx is not None and ctx != mx.cpu(0)
        self._next = self._position = (0, 0)
        """``(epoch, batch)`` of the next pass, and after the last batch of the latest one."""
        self._resumed = WHOLE
        self._sampler_epoch = 0  # As its ``set_epoch`` got it last.
        self._without_batches = False  # True makes the next pass empty: the training has ended.
        self._engine = Engine(self._plan, self._settings)

    def _with_shard(self) -> DataLoader:
        """Determine the shard if that is still open, and return ``self``."""
        if self._shard.settle():  # Only before the first batch.
            sampler = self._batch_sampler
            arguments.check_shard_size(len(self._dataset), self._shard.part)
            sampler.order = sampler.order.of_shard(self._shard.part)
            if not isinstance(self._plan.order, DrawnOrder):
                self._plan.order = sampler.order
        return self

    def __repr__(self) -> str:
        size = getattr(self._batch_sampler, "_batch_size", None)
        batches = f", batch_size={size}" if size else ""
        return f"<{type(self).__name__} of {type(self._dataset).__name__}{batches}>"

    def __iter__(self) -> Iterator[Any]:
        if self._without_batches:
            self._without_batches = False
            return iter(())
        self._with_shard()._shard.notice()
        return Iteration(self)

    def __len__(self) -> int:
        """Return the number of batches in the latest pass, or in the next one if that has ended."""
        return len(self._with_shard()._batch_sampler)

    def explain(self) -> None:
        """Print how the samples are made, and why: one line per stage."""
        lines = [*self._with_shard()._plan.explanation()]
        if isinstance(self._batch_sampler, samplers.OrderBatchSampler):
            lines += self._batch_sampler.order.explanation()
        lines.append(f"workers: {self._engine.description}")
        print("\n".join(lines))

    @property
    def waits(self) -> Waits:
        """Waiting times of the loop for each batch. MXNet may compute during them."""
        return self._engine.waits

    def refresh(self) -> None:
        """Do nothing, unlike MXNet: each pass starts from scratch."""

    def clean(self) -> None:
        """Do nothing, unlike MXNet: no pass starts before its first batch is requested."""

    # --- epoch and state ---

    @property
    def epoch(self) -> int:
        """Epoch of the latest pass, from 0; or of the next one if that has ended."""
        return self._position[0]

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass that of ``epoch``. A running pass is not changed."""
        self._move_to(arguments.check_integer("epoch", epoch, 0), 0)

    def state_dict(self) -> dict[str, int]:
        """Return the position, ``{"epoch": e, "batch": i}``; with ``shard``, in samples.

        ``i`` is the next batch of the latest pass. With ``shard``, the state is
        ``{"epoch": e, "samples": n}``, with the number of samples that all shards together have
        consumed in this pass. It is the same on every shard, and any number of shards, with any
        ``batch_size``, can resume from it: each remaining sample comes once, up to equal lengths of
        the shards.

        Two cases are more restricted:

        - With ``last_batch="rollover"``, the state has ``"batch"``, and only equal shards can
          resume.
        - With ``bucket_by`` and ``shuffle``, only shards whose batches together have the same
          number of samples can resume. The state includes it: ``{"epoch": e, "batch of 64": i}``.

        Raises:
            ValueError: The position can't be resumed: something is random without a ``seed``, or
                depends on earlier passes.
        """
        epoch, batch = position = self._with_shard()._position
        self._check_replay("state_dict", epoch, batch)
        if (order := self._order) is None:
            return {"epoch": epoch, "batch": batch}
        return order.state(position, self._resumed, self._shard.requested is not None)

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Make the next pass start at a saved position. Later passes are whole again.

        Args:
            state: State of a loader of the same samples, with the same ``shuffle`` and ``seed``. If
                it has ``"samples"``, shards and ``batch_size`` may differ.

        Raises:
            ValueError: The state doesn't fit a loader of this length, or the position can't be
                resumed, see ``state_dict``.
        """
        sampler, order = self._with_shard()._batch_sampler, self._order
        num_batches = functools.partial(samplers.count_of, sampler)
        if order is None:
            epoch, count = arguments.position_of(state, num_batches, "loader")
            unit, start = "batch", (epoch, count, WHOLE)
        else:
            epoch, count, unit = order.count_in(state, num_batches, "loader")
            start = order.start_after(epoch, count, unit)
        if unit == "batch" and count and self._shard.requested is not None:
            elastic = order is not None and order.elastic
            self._shard.warn_of_batches(state, sampler.order.consumed(1), elastic)
        self._check_replay("load_state_dict", *start[:2])
        self._move_to(*start)

    @property
    def _order(self) -> Order | None:
        """Order that the batches follow; None if samples roll over or the user has a sampler."""
        order = self._plan.order
        return order if isinstance(order, Order) else None

    def _move_to(self, epoch: int, batch: int, resumed: ResumedEpoch = WHOLE) -> None:
        self._next = self._position = (epoch, batch)
        self._resumed = resumed
        self._set_sampler_epoch(epoch)

    def _set_sampler_epoch(self, epoch: int) -> None:
        self._sampler_epoch = epoch
        samplers.set_epoch(self._batch_sampler, epoch)

    @property
    def _obstacle(self) -> str | None:
        """Reason why batches can't be computed again; None if they can."""
        return samplers.obstacle_to_replay(self._batch_sampler, self._seeded, self._random)

    def _check_replay(self, method: str, epoch: int, batch: int) -> None:
        begins = not batch and not (epoch and samplers.rolls_over(self._batch_sampler))
        if not begins and (obstacle := self._obstacle) is not None:
            raise ValueError(
                f"{method}: a pass can't be continued at batch {batch} of epoch {epoch}, as "
                f"{obstacle}"
            )

    # --- replay ---

    def replay(self, epoch: int, batch: int, *, state: dict[str, int] | None = None) -> Replay:
        """Compute a batch again, without a log: ``print`` it, or write its ``sheet(path)``.

        Args:
            epoch: Epoch of the batch, from 0.
            batch: Number of the batch in the pass; negative numbers count from the end.
            state: Argument of ``load_state_dict``, if the pass was resumed with other shards or
                another ``batch_size``. Not needed in the loader that resumed it.

        Raises:
            IndexError: The pass has no such batch.
            ValueError: The batch can't be computed again, see ``state_dict``; or it is from before
                the state, with batches or shards of another size.
        """
        from adapters.replaying import replayed  # Few trainings need it.

        epoch, plan = arguments.check_integer("epoch", epoch, 0), self._plan
        if (obstacle := self._with_shard()._obstacle) is not None:
            raise ValueError(f"replay: no batch can be computed again, as {obstacle}")
        records = plan.pipeline.records
        key = self._replayed(epoch, batch, state)
        named = integers(plan.samples(key))
        if named is None:
            raise ValueError(
                "batch_sampler must give numbers for a batch to be replayed, got "
                f"{plan.samples(key)!r}"
            )

        def origin(number: int) -> Origin:
            (own,) = plan.pipeline.base_numbers([number])
            if records is None:
                return Origin()
            return records.origin(own, generator(plan.seed, epoch, own, DECODE))

        compute = functools.partial(self._computed, key)
        return replayed(key, plan.seed, named, compute, plan.data.__getitem__, origin, FIRST_RUN)

    def _replayed(self, epoch: int, index: int, state: Any) -> BatchKey:
        sampler = samplers.sampler_twin(self._batch_sampler)
        samplers.set_epoch(sampler, epoch)
        index = arguments.index_of(index, samplers.count_of(sampler, epoch))
        if (order := self._order) is not None:
            resumed = replayed_epoch(self._resumed, order, epoch, state, "loader")
            return replayed_key(resumed, order, epoch, index)
        with seeded(_GLOBAL):
            names: Any = next(samplers.drawn_batches(sampler, epoch, index), None)
        if names is None:
            raise IndexError(f"batch must be one of the pass, got {index}: it has fewer")
        return BatchKey(epoch, index, names)

    def _computed(self, key: BatchKey) -> Any:
        self._plan.begin_pass()
        try:
            *arrays, treedef = self._plan.batch(key, aligned_empty).batch
        except StopIteration as error:  # It would silently end an iteration over batches.
            raise_as_itself(error)
        return self._move(treedef.built(arrays, is_np_array()))

    def peek(self, batches: int = 1) -> Peek:
        """Return the first samples of a pass's first batches, for display, without starting a pass.

        A notebook shows a contact sheet, or a table if there are no images; ``print`` shows a
        table, and ``.save("sheet.png")`` writes the sheet.
        """
        count = arguments.check_integer("batches", batches, 1)
        sampler = samplers.sampler_twin(self._with_shard()._batch_sampler)
        with seeded(_GLOBAL):  # Of the sampler's, if it draws from them.
            drawn = list(itertools.islice(samplers.drawn_batches(sampler, 0, 0), count))
        keys = (BatchKey(0, index, names) for index, names in enumerate(drawn))
        return Peek(map(self._computed, keys))

    def _twin(self) -> DataLoader:
        """Copy of the loader at epoch 0, with separate workers and a copied batch sampler."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self._with_shard().__dict__)
        twin._batch_sampler = samplers.sampler_twin(self._batch_sampler)
        twin._next, twin._position, twin._resumed = (0, 0), (0, 0), WHOLE
        twin._engine = Engine(self._plan, self._settings)
        return twin

    # --- the end ---

    def close(self) -> None:
        """Stop the workers and free their shared memory. Delivered batches stay valid."""
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
        # weakref.finalize would keep the plan alive, and the objects whose methods are in it.
        engine = getattr(self, "_engine", None)
        if engine is not None and not engine.closed:  # The interpreter's end has closed it.
            engine.close(wait=False)


gluon_loader = DataLoader
