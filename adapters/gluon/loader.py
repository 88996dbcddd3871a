"""``gluon_loader``: a ``gluon.data.DataLoader`` that keeps up."""

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
from adapters.arguments import check_integer
from adapters.batch.arranging import blocks_of
from adapters.batch.blocks import Blocks
from adapters.batch.key import WHOLE
from adapters.batch.order import DrawnOrder
from adapters.batch.replacement import OnError
from adapters.bytecode import generators_used
from adapters.engine import Engine, Waits
from adapters.generators import generator_argument
from adapters.gluon.arguments import check_arguments
from adapters.gluon.devices import mover
from adapters.gluon.explanation import explanation
from adapters.gluon.iteration import Begun, Iteration, begin
from adapters.gluon.plan import GluonPlan
from adapters.gluon.progress import Progress
from adapters.gluon.recipe import Opaque, Recipe, numbered_source, recipe_of
from adapters.gluon.recorddatasets import make_reading_atomic
from adapters.gluon.samplers import (
    EpochBatchSampler,
    OrderBatchSampler,
    batch_sampler_of,
    fitted,
    sampler_twin,
    tell_epoch,
)
from adapters.gluon.standing import Standing
from adapters.gluon.workers import settings_of
from adapters.ranks import AskedShard
from adapters.sources import as_source, holds_stored, open_guessed

_open: weakref.WeakSet[Engine] = weakref.WeakSet()


class DataLoader(Standing, mx.gluon.data.DataLoader):  # type: ignore[misc]
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
        auto_reload: Begin with a pass as soon as the loader is made, and with the next one as soon
            as one has ended, before it is asked for. A pass that isn't taken was made in vain.
        ctx: Move the batches to this device, the next one while this one is used.
        seed: Of the order and of all that is random, also of what transforms draw from
            ``random``, ``numpy.random`` and MXNet's generator. None takes one from
            ``numpy.random`` when the loader is made, a single draw: ``numpy.random.seed`` before
            that line repeats all passes of the loader.
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
        auto_reload: bool = False,
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
        recipe = _prepared(recipe_of(dataset), batchify_fn)
        foreign = batchify_fn is not None and not getattr(batchify_fn, "only_reads", False)
        opaque = [*recipe.opaque, *([batchify_fn] if foreign else [])]
        used = generators_used(*opaque, *filter(callable, (batch_transform, on_error)))
        self._seeded = seed is not None
        seed = int(np.random.randint(1 << 31) if seed is None else seed)
        self._orders = functools.partial(
            batch_sampler_of,
            len(dataset),
            batch_size,
            shuffle,
            sampler,
            last_batch,
            batch_sampler,
            seed,
            seeded=self._seeded,
            source=numbered_source(recipe, dataset, blocks_of(shuffle) is not None),
            weights=weights,
            bucket_by=bucket_by,
            tolerant=on_error != "raise",
        )
        self._shard = AskedShard(shard)
        self._batch_sampler = self._orders(shard=self._shard.asked)
        draws = recipe.draws or generator_argument(batch_transform) is not None
        self._random = draws or bool(used.possibly)
        ahead = isinstance(self._batch_sampler, OrderBatchSampler)
        self._plan = GluonPlan(
            self._batch_sampler.order if ahead else DrawnOrder(batch_size or 1),
            recipe,
            dataset,
            batch_transform=batch_transform,
            seed=seed,
            on_error=on_error,
            batchify=fitted(self._batch_sampler, batchify_fn),
            used=used.possibly,
            semantics=(is_np_shape(), is_np_array()),
            own_order=isinstance(self._batch_sampler, EpochBatchSampler),
            thread_safe=True if thread_safe is None and thread_pool is True else thread_safe,
        )
        # A function of whole batches alone is no reason for processes, unless it draws.
        own = bool(opaque or used.possibly)
        self._settings = settings_of(
            self._plan, num_workers, thread_pool, prefetch, timeout, own, used
        )
        # The data set may change between passes, but for processes that were asked for: as in
        # MXNet, these have it as it was.
        self._plan.live = not self._settings.use_multiprocessing
        self._dataset = dataset
        self._batchify_fn = batchify_fn or default_batchify_fn  # For subclasses.
        self._move = mover(ctx, pin_memory, pin_device_id)
        self._begun: Begun | None = None
        self._without_batches = False  # The next pass: of a training that has ended.
        self._progress, self._continuation = Progress(), WHOLE
        self._engine = Engine(self._plan, self._settings)
        _open.add(self._engine)
        self.auto_reload = bool(auto_reload)
        if self.auto_reload:
            self.refresh()

    def _settled(self) -> DataLoader:
        """Itself, with the shard that it has from now on."""
        if self._shard.settle():  # Which is before anything was asked for.
            self._batch_sampler = self._orders(shard=self._shard.asked)
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
        from adapters.gluon.replaying import replayed

        check_integer("epoch", epoch, 0)
        check_integer("batch", batch, None)
        if (obstacle := self._settled()._obstacle) is not None:
            raise ValueError(f"replay: no batch can be computed again, as {obstacle}")
        epoch, rest, twin = int(epoch), self._rest(int(epoch), state), self._twin()

        def computed(index: int) -> Any:
            twin._move_to(epoch, index, rest)
            return next(iter(twin))

        with twin:
            tell_epoch(twin._batch_sampler, epoch)
            return replayed(self._plan, twin._batch_sampler, epoch, int(batch), rest, computed)

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

    @property
    def waits(self) -> Waits:
        """How long the loop waited for each batch; MXNet may compute on meanwhile."""
        return self._engine.waits

    def refresh(self) -> None:
        """Begin with the next pass anew, where there are workers for it."""
        self._settled().clean()
        if self._engine.depth:
            self._begun = begin(self)
            self._begun.read_ahead()

    def clean(self) -> None:
        """Drop what is begun of the next pass; it begins when its first batch is asked for."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.close()
            self._progress.give_back(begun.account)

    def close(self) -> None:
        """End the workers and free what they shared; batches that are held stay valid."""
        self.clean()
        self._engine.close()

    def _twin(self) -> DataLoader:
        """The same loader once more, with workers of its own, that draws nothing of the user's."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self._settled().__dict__)
        twin._batch_sampler = sampler_twin(self._batch_sampler)
        twin._progress, twin._continuation = Progress(), WHOLE
        twin._begun, twin.auto_reload = None, False
        twin._engine = Engine(self._plan, self._settings)
        _open.add(twin._engine)
        return twin

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


def _prepared(recipe: Recipe, batchify: Any) -> Recipe:
    """Without the arrays where the samples are asked for one by one all the same."""
    asked = isinstance(recipe.steps[0], Opaque) if recipe.steps else batchify is not None
    if asked:
        recipe.columns = None
    return recipe


def _close_all() -> None:
    for engine in list(_open):
        engine.end_with_main_thread()


# Before the executors of concurrent.futures and loky are taken down, which atexit is too late for.
getattr(threading, "_register_atexit", None) and threading._register_atexit(_close_all)  # type: ignore[attr-defined]
