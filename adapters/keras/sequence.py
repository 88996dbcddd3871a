"""``SafeSequence``: the data set for ``fit``, ``evaluate`` and ``predict``."""

from __future__ import annotations

import copy
import dataclasses
import logging
import reprlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import keras

from adapters import arguments
from adapters.arguments import DaskClient
from adapters.batch.arranging import check_shuffle, order_of
from adapters.batch.blocks import Blocks
from adapters.batch.order import Order, replayed_epoch, replayed_key
from adapters.batch.plan import WHOLE, ResumedEpoch
from adapters.batch.replacement import OnError
from adapters.batch.sourceplan import SourcePlan
from adapters.engine import Engine, Waits
from adapters.generator_search import drawn_unseeded, generators_used
from adapters.keras import internals
from adapters.keras.arguments import (
    check_given_shard,
    check_order,
    check_subclass,
    check_whole_batches,
    check_workers,
    settings_of,
    source_of,
)
from adapters.keras.hooks import HookedEngine, divert, next_keras_epoch, overrides_hooks
from adapters.keras.progress import Progress, is_read_by_a_call
from adapters.keras.reading import Iteration
from adapters.ranks import ShardArgument
from adapters.sources import SequenceSource, Source
from adapters.sources.sequence import HOOKS, EpochHooks
from adapters.user_code import name_of
from adapters.viewing.peek import Peek

if TYPE_CHECKING:
    from adapters.replaying import Replay

log = logging.getLogger("adapters")

# Attributes of a sequence that has started; a copy makes its own.
_BEGUN = frozenset({"_engine", "_progress"})
_beginning = threading.RLock()
_Self = TypeVar("_Self", bound="SafeSequence")


class SafeSequence(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches for Keras: thread-safe, process-safe, and the same for every number of workers.

    Args:
        source: An array, or a tuple ``(x, y)`` or ``(x, y, sample_weight)``, or a dict of arrays
            of equal length (also nested, as in ``([x1, x2], y)``); or an object with ``__len__``
            and ``__getitem__``, which returns one sample (``__getitems__(list of int)`` is used if
            it exists); or the result of ``open_records`` or ``open_images``; or the path or glob of
            record files, read as images with labels if the first record is one; or the path of a
            folder with one folder of images per class; or a Keras ``PyDataset``, whose items are
            whole batches. Arrays that the ``PyDataset`` keeps are copied. If it is endless
            (``num_batches`` is None), ``fit`` needs ``steps_per_epoch``.
        batch_size: Samples in a batch. A ``PyDataset`` has its own.
        transform: ``transform(sample)`` or ``transform(sample, rng)``, returns a sample.
        batch_transform: ``batch_transform(batch)`` or ``batch_transform(batch, rng)``, returns a
            batch. Much faster than ``transform`` if NumPy can process all samples at once. ``rng``
            is a ``numpy.random.Generator`` that depends only on the seed, the epoch and the number
            of the sample or batch.
        shuffle: Shuffle the samples in every epoch, in O(1) memory. ``"blocks"`` or ``Blocks(...)``
            reads large blocks of the source and mixes several at a time.
        seed: Seed of the order and of the generators. ``random`` and ``numpy.random`` are seeded
            too if the code of the source or of a transform names them. Their numbers then depend
            only on the seed, the epoch and the number of the sample (for a ``PyDataset`` and a
            ``batch_transform``: of the batch), and their state is restored afterwards. Threads take
            turns for that. Another thread that draws from them meanwhile gets repeated numbers.
        drop_remainder: Leave out the last batch of an epoch if it isn't full.
        shard: ``(index, count)``: take that part of the one global order. All shards have the same
            number of samples; up to ``count - 1`` samples are left out per epoch. ``"auto"``: the
            part of this process, from the framework or the launcher, see docs/scale.md; it is
            determined here, or else at the first use. If a ``keras.distribution`` with
            ``auto_shard_dataset`` shards a ``PyDataset`` (Keras 3.16 or newer), None and ``"auto"``
            take the part that it gives to this process.
        on_error: Handling of a sample that can't be fetched or transformed. ``"raise"``; ``"skip"``
            to take the sample with the next higher number that can be read (counted, and logged at
            the end of the epoch); or ``on_error(exception, sample_number)``, which returns a
            finished sample.
        workers: Number of batches computed at the same time. ``"auto"`` measures the first batches
            and decides; 0 computes each batch in the thread that requests it. More processes
            than CPUs are used only if the work turns out to wait. A ``Client`` of a Dask cluster
            (dask.distributed) computes on its workers, for a host that lacks CPUs; they must find
            files under the same names.
        use_multiprocessing: Use processes as workers. Source and transforms are sent to them once,
            by cloudpickle; arrays in them are shared. ``workers="auto"`` may choose processes
            anyway.
        max_queue_size: Limit of batches that are ready ahead of the trainer; bounds the memory.
            Each worker may have one more in progress.
        collate: ``collate(samples)`` or ``collate(samples, rng)``, returns the batch of a list of
            samples, such as ``adapters.pad()`` for unequal lengths. None stacks equal shapes.
        weights: Weight of each sample. Samples are drawn with replacement in proportion to their
            weights, as many per epoch as there are; see ``Weighted`` and
            ``class_balanced(labels)``.
        bucket_by: Length of each sample. Batches, over all shards together, are made of samples of
            similar length; see ``Buckets``.
        thread_safe: True if several threads may run your code (source, ``transform``,
            ``batch_transform``, ``collate``, ``on_error``) at once. None: each object may declare
            it by an attribute ``thread_safe``. Undeclared code runs in one thread at a time, in any
            number of processes. NumPy's arrays and functions, Keras's preprocessing layers without
            seeds, and the readers and decoders of this package need no declaration.

    Raises:
        TypeError: The source has no random access, or an argument has the wrong type.
        ValueError: An argument is out of range, or arrays have unequal lengths.

    An exception in a worker arrives as its own type, with the sample's number in its notes. If
    worker processes repeatedly die over the same batch, ``WorkerError`` is raised.

    ``len(seq)`` is the number of batches, ``seq[i]`` is batch i of the current epoch, and
    ``for batch in seq`` reads one epoch, which the workers read ahead. The epoch advances when a
    pass has delivered its last batch; an abandoned pass is replayed from its start. After your own
    loop over ``seq[i]``, ``seq.on_epoch_end()`` advances the epoch. Threads may share a pass, in
    which each batch goes to one of them, and may call ``seq[i]``.

    A subclass may define ``on_epoch_begin`` and ``on_epoch_end``. They are called once per epoch on
    every backend, and nothing is then read beyond the end of an epoch. Everything that makes a
    batch is an argument of the constructor; the methods for it can't be overridden. A copy
    (``copy``, ``pickle``) has separate workers, and its next pass starts where this sequence's next
    pass does; for a position within a pass use ``state_dict()``. A pickled copy has
    ``workers="auto"`` in place of a Dask client.

    Example:
        >>> import numpy as np
        >>> from adapters import SafeSequence
        >>> seq = SafeSequence((np.arange(10), np.arange(10) % 2), batch_size=4, shuffle=True)
        >>> [len(x) for x, y in seq]
        [4, 4, 2]
    """

    _engine: Engine
    _progress: Progress
    _measured = False
    """True if the sequence is read for a measurement, so that nothing else inspects its batches."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        check_subclass(cls, SafeSequence)
        divert(cls, SafeSequence)

    def __init__(
        self,
        source: Any,
        batch_size: int = 32,
        *,
        transform: Callable[..., Any] | None = None,
        batch_transform: Callable[..., Any] | None = None,
        shuffle: bool | Literal["blocks"] | Blocks = False,
        seed: int = 0,
        drop_remainder: bool = False,
        shard: tuple[int, int] | Literal["auto"] | None = None,
        on_error: OnError = "raise",
        workers: int | Literal["auto"] | DaskClient = "auto",
        use_multiprocessing: bool = False,
        max_queue_size: int = 10,
        collate: Callable[[list[Any]], Any] | None = None,
        weights: Any = None,
        bucket_by: Any = None,
        thread_safe: bool | None = None,
    ) -> None:
        arguments.check_integer("batch_size", batch_size, 1)
        arguments.check_integer("seed", seed, 0)
        arguments.check_integer("max_queue_size", max_queue_size, 1)
        check_workers(workers, use_multiprocessing)
        arguments.check_function("transform", transform, "sample")
        arguments.check_function("batch_transform", batch_transform, "batch")
        arguments.check_function("collate", collate, "samples")
        check_shuffle(shuffle)
        arguments.check_flag("drop_remainder", drop_remainder)
        arguments.check_flag("use_multiprocessing", use_multiprocessing)
        arguments.check_on_error(on_error)
        arguments.check_thread_safe(thread_safe)
        arguments.check_shard(shard)
        super().__init__(max_queue_size=int(max_queue_size))
        self._source: Source = source_of(source)
        self._endless = self._source.endless
        self._hooked = overrides_hooks(type(self), SafeSequence)
        if self._source.whole_batches:
            given: dict[str, Any] = {"transform": transform, "collate": collate, "shuffle": shuffle}
            given |= {"drop_remainder": drop_remainder, "on_error": on_error}
            check_whole_batches(source, self._endless, given)
            batch_size = 1
        self._shard = ShardArgument(shard)
        order = order_of(
            None if self._endless else len(self._source),
            int(batch_size),
            shuffle,
            int(seed),
            bool(drop_remainder),
            self._shard.part,
            source=self._source,
            weights=weights,
            bucket_by=bucket_by,
        )
        check_order(order)
        code = self._source.users_code if isinstance(source, Source) else (source,)
        used = generators_used(*code, transform, collate, batch_transform, on_error)
        named = used.certainly & {"numpy", "random"}
        self._plan = SourcePlan(
            self._source,
            order,
            transform,
            batch_transform,
            int(seed),
            on_error,
            self._hooked,
            named,
            (used.possibly & {"numpy", "random"}) - named,
            order.fitted(collate),
            thread_safe=thread_safe,
        )
        self._settings = settings_of(workers, use_multiprocessing, max_queue_size, used.process)
        self._epoch_hooks = EpochHooks()
        self._begin(0, 0)

    # --- batches ---

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self._source!r}, batch_size={self._plan.order.batch_size}>"
        )

    def __len__(self) -> int:
        """Return the number of batches in an epoch.

        Raises:
            TypeError: The source is endless.
        """
        if self._endless:
            raise TypeError(
                "a SafeSequence of a source without an end (num_batches is None) has no length: "
                "give fit steps_per_epoch, or the source a __len__"
            )
        return len(self._with_length()._plan.order)

    @property
    def num_batches(self) -> int | None:
        """Number of batches in an epoch; None if the source is endless."""
        return self._with_length()._plan.num_batches

    def __bool__(self) -> bool:
        """Return True, as an endless sequence has no length."""
        return True

    def __getitem__(self, index: int) -> Any:
        """Batch ``index`` of the current epoch, computed in the calling thread.

        Raises:
            IndexError: ``index`` is not in ``range(-len(seq), len(seq))``, or is negative and the
                source is endless.
        """
        number = arguments.index_of(index, self._with_shard()._plan.num_batches)
        self._engine.enter_epoch(self.epoch)
        key = self._progress.resumed.key(self.epoch, number)
        batch = self._engine.compute(key).batch
        self._progress.read_by_number()
        return batch

    def __iter__(self) -> Iterator[Any]:
        """Iterate over one epoch, or over the rest of one after ``load_state_dict``."""
        self._with_shard()._shard.notice()
        return Iteration(self)

    # --- worker settings ---

    @property
    def workers(self) -> Any:
        """Constructor's ``workers``: ``"auto"``, a number or a Dask client; see ``explain``."""
        return self._settings.cluster or self._settings.workers

    @property
    def use_multiprocessing(self) -> bool:
        """Constructor's ``use_multiprocessing``; ``workers="auto"`` may override False."""
        return self._settings.use_multiprocessing

    @property
    def max_queue_size(self) -> int:
        """Limit of batches that are ready ahead of the trainer."""
        return self._settings.max_queue_size

    def __setattr__(self, name: str, value: Any) -> None:
        # A subclass may have attributes of these names.
        if type(self) is SafeSequence and name in SafeSequence.__init__.__annotations__:
            raise AttributeError(
                f"{name} is fixed once a SafeSequence is there: make another one with "
                f"SafeSequence(..., {name}={reprlib.repr(value)})"
            )
        super().__setattr__(name, value)

    # --- the epoch, and the state of a pass ---

    @property
    def epoch(self) -> int:
        """Current epoch, from 0; in ``on_epoch_begin`` and ``on_epoch_end``, the next one."""
        hooks = self._epoch_hooks
        return hooks.calls // 2 if hooks.running_here else self._progress.epoch

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the current one. A running pass is not changed.

        Raises:
            ValueError: ``epoch`` is negative, or a ``PyDataset`` with hooks has already left it.
        """
        arguments.check_integer("epoch", epoch, 0)
        progress = self._progress
        if is_read_by_a_call(progress) and progress.position() == (epoch, 0):
            return  # In fit with steps_per_epoch, whose pass goes over the ends of epochs.
        self._move(int(epoch), 0)

    def _move(self, epoch: int, step: int, resumed: ResumedEpoch = WHOLE) -> None:
        source = self._plan.source
        if isinstance(source, SequenceSource):
            source.check_epoch(epoch)
        self._progress.move(epoch, step, resumed)

    def state_dict(self) -> dict[str, int]:
        """Return the position, ``{"epoch": e, "batch": i}``; with ``shard``, in samples.

        ``i`` is the next batch of the latest pass. With ``shard``, the state is
        ``{"epoch": e, "samples": n}``, with the number of samples that all shards together have
        consumed in this epoch. It is the same on every shard, and any number of shards, with any
        ``batch_size``, can resume from it: each remaining sample comes once, up to equal lengths of
        the shards.

        Two cases are more restricted:

        - If ``fit(shuffle=True)`` permutes the batches of a sequence that doesn't shuffle itself,
          the state has ``"batch"``, and only equal shards can resume.
        - With ``bucket_by`` and ``shuffle``, only shards whose batches together have the same
          number of samples can resume. The state includes it: ``{"epoch": e, "batch of 64": i}``.

        In a callback of ``fit``, the next batch is the one after the last that was trained on; up
        to two more under a ``tf.distribute`` strategy, which reads ahead itself.
        """
        progress = self._with_shard()._progress
        return self._plan.order.state(
            progress.position(), progress.resumed, self._sharded, progress.counts_samples
        )

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Make the next pass start at a saved position. Later passes are whole again.

        Args:
            state: State of a sequence of the same samples, with the same ``shuffle`` and ``seed``.
                If it has ``"samples"``, shards and ``batch_size`` may differ.

        Raises:
            ValueError: The state doesn't fit a sequence of this length, or a ``PyDataset`` with
                hooks has already left its epoch.
        """
        order = self._with_length()._plan.order
        epoch, count, unit = order.count_in(state, lambda epoch: order.num_batches, "sequence")
        if unit == "batch" and count and self._sharded:
            self._shard.warn_of_batches(state, order.consumed(1), order.elastic)
        if epoch or count:
            self._warn_of_drawn_epochs()
        self._move(*order.start_after(epoch, count, unit))

    def _warn_of_drawn_epochs(self) -> None:
        """Warn if hooks that are called up to the resumed epoch make others than before."""
        source = self._source
        hooks = source.replayed_hooks if isinstance(source, SequenceSource) else []
        if not self._epoch_hooks.calls:
            hooks += [getattr(getattr(type(self), name), "__wrapped__", None) for name in HOOKS]
        if drawn := drawn_unseeded([each for each in hooks if hasattr(each, "__code__")]):
            log.warning(
                "on_epoch_begin or on_epoch_end draws from %s, so its epochs differ from "
                "those of the saved state, and samples may repeat: draw from "
                "numpy.random.default_rng(epoch), and count the epochs yourself",
                " and ".join(sorted(drawn)).replace("numpy", "numpy.random"),
            )

    @property
    def _sharded(self) -> bool:
        return self._shard.requested is not None or self._plan.order.shard[1] > 1

    # --- inspection ---

    @property
    def waits(self) -> Waits:
        """Waiting times of the reader of the batches.

        The reader is the trainer in ``fit`` on JAX and PyTorch. On TensorFlow it is the thread that
        reads ahead; use ``adapters.keras.WaitReport`` there for the trainer's waiting times.
        """
        return self._engine.waits

    def explain(self) -> None:
        """Print how the batches are made, and by which workers: one line per stage."""
        print("\n".join(_explanation(self._with_shard()._plan, self._engine)))

    def peek(self, batches: int = 1) -> Peek:
        """Return the first samples of the current epoch's first batches, for display.

        A notebook shows a contact sheet, or a table if there are no images; ``print`` shows a
        table, and ``.save("sheet.png")`` writes the sheet. The position doesn't change.
        """
        arguments.check_integer("batches", batches, 1)
        plan = self._with_length()._plan
        count = int(batches) if self._endless else min(int(batches), len(plan.order))
        self._engine.enter_epoch(self.epoch)
        resumed = self._progress.resumed
        keys = (resumed.key(self.epoch, index) for index in range(count))
        return Peek(self._engine.compute(key).batch for key in keys)

    def replay(
        self,
        epoch: int,
        batch: int,
        *,
        shuffled: bool = False,
        state: dict[str, int] | None = None,
    ) -> Replay:
        """Compute a batch again, without a log: ``print`` it, or write its ``sheet(path)``.

        Args:
            epoch: Epoch of the batch, from 0.
            batch: Number of the batch, as in ``seq[batch]``.
            shuffled: True if ``batch`` counts in the order of ``fit(shuffle=True)``, which permutes
                the batches of a sequence that doesn't shuffle.
            state: Argument of ``load_state_dict``, if the epoch was resumed with other shards or
                another ``batch_size``. Not needed in the sequence that resumed it.

        Raises:
            IndexError: ``batch`` is not in ``range(-len(seq), len(seq))``.
            ValueError: The source has its own epochs and is in another one; or the batch is from
                before the state, with batches or shards of another size.
        """
        arguments.check_integer("epoch", epoch, 0)
        plan, epoch = self._with_length()._plan, int(epoch)
        if epoch == self.epoch:
            self._engine.enter_epoch(epoch)  # The epoch's hooks may change its batches.
        number = arguments.index_of(batch, plan.num_batches)
        resumed = replayed_epoch(self._progress.resumed, plan.order, epoch, state, "sequence")
        permuted = shuffled and not self._endless and not plan.order.shuffle
        key = replayed_key(resumed, plan.order, epoch, number, plan.shuffled if permuted else None)
        from adapters.replaying import replay_batch  # Few trainings need it.

        return replay_batch(plan, key, self.epoch)

    # --- lifetime, copies, shards ---

    def _begin(self, epoch: int, step: int, resumed: ResumedEpoch = WHOLE) -> None:
        """Create the engine and the position, at this batch."""
        settings, num_batches = self._settings, self._plan.num_batches
        if self._endless and self._plan.changes_between_epochs:
            # Only Keras knows when its epochs end, and their hooks change later batches.
            settings = dataclasses.replace(settings, workers=0, max_queue_size=1)
        if self._hooked:
            self._engine = HookedEngine(self._plan, settings, self)
            self._progress = Progress(num_batches, self._engine.leave_for)
        else:
            self._engine = Engine(self._plan, settings)
            self._progress = Progress(num_batches, self._engine.enter_epoch)
        self._progress.move(epoch, step, resumed)

    def close(self) -> None:
        """Stop the workers and free their shared memory. Delivered batches stay valid."""
        self._engine.close()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():  # Workers have ended with the main thread; modules may be gone.
            return
        # weakref.finalize would keep the plan alive, and the objects whose methods are in it.
        if (engine := self.__dict__.get("_engine")) is not None:
            engine.close(wait=False)

    def __getstate__(self) -> dict[str, Any]:
        progress = self._with_shard()._progress
        state = {name: value for name, value in self.__dict__.items() if name not in _BEGUN}
        state["_epoch_hooks"] = copy.copy(self._epoch_hooks)
        return {**state, "_position": (*progress.next_start(), progress.resumed)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __getattr__(self, name: str) -> Any:
        if name in _BEGUN:
            with _beginning:
                if (position := self.__dict__.pop("_position", None)) is not None:
                    self._begin(*position)
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _take_shard(self, given: tuple[int, int] | None) -> None:
        """Take the shard that Keras gives to this process, or else the requested one."""
        check_given_shard(given, self._shard)
        shard = given or self._shard.part
        if shard != self._plan.order.shard:
            self._take_order(self._plan.order.of_shard(shard))

    def _take_order(self, order: Order) -> None:
        """Take the order of another shard or length, at the same position."""
        check_order(order)
        (epoch, step), before = self._progress.next_start(), self._progress.resumed
        resumes = before.covers(epoch, step)
        consumed = self._plan.order.consumed(step, before.origin if resumes else 0)
        if order.size is not None:
            consumed = min(consumed, order.size)
        self._engine.close()
        self._plan = dataclasses.replace(self._plan, order=order)
        self._begin(epoch, step if order.size is None else min(step, len(order) - 1))
        if step and order.elastic:  # Batches differ between shards, so count samples.
            self._move(*order.start_after(epoch, consumed, "samples"))

    def _with_shard(self: _Self) -> _Self:
        """Determine the shard if that is still open, and return ``self``."""
        if self._shard.settle():
            self._take_shard(None)
        return self

    def _with_length(self: _Self) -> _Self:
        """Take the present length of a source of whole batches, unless it is being read."""
        if self._with_shard()._source.whole_batches and not self._endless:
            with _beginning:
                if not (self._engine.closed or self._engine.in_use):
                    order = self._plan.resized()
                    if order is not self._plan.order:
                        self._take_order(order)
        return self

    # --- hooks ---

    # HookedEngine calls a subclass's overrides. Other callers reach these methods, see ``divert``.

    def on_epoch_begin(self) -> None:
        """Hook for subclasses, called once per epoch, before its first batch is computed."""
        if not (self._epoch_hooks.running_here or is_read_by_a_call(self._with_shard()._progress)):
            self._engine.enter_epoch(self.epoch)

    def on_epoch_end(self) -> None:
        """Start the next epoch, after your own loop over ``seq[i]``.

        This does nothing within ``fit``, ``evaluate`` and ``predict``, or if ``for batch in seq``
        has just reached the end of the epoch. As a hook for subclasses, it is called once per
        epoch, after its last batch has been delivered, or by such a loop.
        """
        hooks = self._epoch_hooks
        if hooks.running_here or is_read_by_a_call(self._with_shard()._progress):
            return
        if self._endless:
            next_keras_epoch(self._engine, self._source)
            return
        if self._hooked and hooks.calls == 2 * self.epoch:
            hooks.calls += 1  # No begin hook for an epoch of which nothing was read.
        self._progress.end_epoch()


def _explanation(plan: SourcePlan, engine: Engine) -> Iterator[str]:
    """Yield a line for each stage of the pipeline, workers last."""
    transformed = plan.transform is not None or plan.collate is not None
    yield f"source: {plan.source.way(transformed)}"
    if plan.transform is not None:
        yield f"transform {name_of(plan.transform)}: a sample at a time"
    if plan.collate is not None:
        yield f"collate {name_of(plan.collate)}: makes a batch of a list of samples"
    if plan.batch_transform is not None:
        yield f"batch_transform {name_of(plan.batch_transform)}: a batch at a time"
    yield from plan.order.explanation()
    if plan.changes_between_epochs:
        yield "epochs: nothing is read beyond the end of one, as hooks may change what comes next"
    if internals.by_keras_adapter():
        yield "keras: reads by its own adapter, so that fit has nothing computed ahead of time"
    workers = f"workers: {engine.description}"
    chosen, count = engine.chosen, engine.chosen.workers
    few = count == "auto" or count < 2 or chosen.use_multiprocessing or chosen.kind is not None
    if not few and plan.one_thread_at_a_time:
        unsafe = " and ".join(plan.not_thread_safe)
        workers += f"; only one of them is busy at a time, as {unsafe} is not declared thread_safe"
    yield workers
