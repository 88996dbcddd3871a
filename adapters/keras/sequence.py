"""``SafeSequence``: the data set that goes into ``fit``, ``evaluate`` and ``predict``."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

import keras

from adapters import replaying, viewing
from adapters.arguments import (
    DaskClient,
    batches_of,
    check_integer,
    position_of,
    samples_of,
    unit_of,
)
from adapters.batch.arranging import order_of
from adapters.batch.blocks import Blocks
from adapters.batch.key import WHOLE, Continuation
from adapters.batch.replacement import OnError
from adapters.batch.sourceplan import SourcePlan
from adapters.bytecode import generators_used
from adapters.engine import Engine, Waits
from adapters.keras.arguments import (
    check_arguments,
    check_given_shard,
    check_members,
    check_order,
    check_subclass,
    check_whole_batches,
    fixed,
    index_of,
    settings_of,
)
from adapters.keras.calls import is_read_by_a_call
from adapters.keras.exit import opened
from adapters.keras.explanation import explanation
from adapters.keras.hooks import HookedEngine, divert, is_running, own_hooks, turn
from adapters.keras.internals import called_by_keras, notice_own_adapter
from adapters.keras.iteration import Iteration
from adapters.keras.progress import Progress
from adapters.keras.sources import Inner, source_of, without_none
from adapters.ranks import ShardArgument
from adapters.replaying import continuation_of, key_of
from adapters.sources import SequenceSource, Source

# What a sequence has once it has begun; a copy has its own.
_BEGUN = frozenset({"_engine", "_progress", "_served"})
_beginning = threading.RLock()

_Self = TypeVar("_Self", bound="SafeSequence")


class SafeSequence(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches for Keras: thread-safe, process-safe, and the same for every number of workers.

    Args:
        source: An array, or a tuple ``(x, y)`` or ``(x, y, sample_weight)``, or a dict (nested
            too, as in ``([x1, x2], y)``) of arrays of equal length; or an object with ``__len__``
            and ``__getitem__`` that returns one sample (``__getitems__(list of int)`` is used where
            it exists); or what ``open_records`` or ``open_images`` returns, or the path of a record
            file or a glob, whose records are images with labels where the first one is, or of a
            folder with a folder of images per class; or a Keras ``PyDataset``
            whose items are whole batches. Arrays that it keeps are copied. An endless one
            (``num_batches`` is None) needs ``steps_per_epoch`` in ``fit``.
        batch_size: Samples in a batch. A ``PyDataset`` has its own.
        transform: ``transform(sample)`` or ``transform(sample, rng)`` makes a sample of a sample.
        batch_transform: ``batch_transform(batch)`` or ``batch_transform(batch, rng)`` makes a batch
            of a collated batch; much faster than ``transform`` where NumPy can do it to all
            samples at once. ``rng`` is a ``numpy.random.Generator`` that depends on the seed, the
            epoch and the number of the sample or batch alone.
        shuffle: A new order of the samples in every epoch, in O(1) memory. ``"blocks"``, or
            ``Blocks(...)``, reads large blocks of the source and mixes several at a time.
        seed: Of the order and of the generators; also of ``random`` and ``numpy.random``, where
            the code of the source or of a transform names them. What these give depends on the
            seed, the epoch and the number of the sample (of the batch for a ``PyDataset`` and a
            ``batch_transform``) alone, and they are afterwards as they were. Threads take turns for
            that, and a thread of yours that draws meanwhile gets numbers that repeat.
        drop_remainder: Leave out the last batch of an epoch when it isn't full.
        shard: ``(index, count)``: take that part of the one global order. All shards have the same
            number of samples; up to ``count - 1`` samples are left out per epoch. ``"auto"``: the
            part of this process, as the framework or the launcher says, see docs/scale.md; it is
            found out here, or else at the first use. Where a ``keras.distribution`` with
            ``auto_shard_dataset`` shards a ``PyDataset`` (from Keras 3.16 on), None and ``"auto"``
            take the part that it gives to this process.
        on_error: For a sample that can't be fetched or transformed: ``"raise"``; ``"skip"``, take
            the sample with the next higher number that can be (counted, and logged at the end of
            the epoch); or ``on_error(exception, sample_number)`` returns a finished sample.
        workers: ``"auto"`` measures the first batches and decides; 0 computes each batch when it is
            asked for; more compute that many at a time (processes beyond the CPUs: where the work
            turns out to wait). Or the ``Client`` of a Dask cluster (dask.distributed), whose
            workers compute for a host that lacks CPUs; they must find files under the same names.
        use_multiprocessing: Workers are processes. Source and transforms are sent to them once, by
            cloudpickle; arrays in them are shared. ``workers="auto"`` may choose processes without
            it.
        max_queue_size: Batches that may be ready ahead of the trainer; bounds the memory. Each
            worker may have one in progress besides.
        collate: ``collate(list of samples)`` returns the batch; ``adapters.pad()`` makes one for
            samples of unequal lengths. None stacks samples of equal shapes.
        weights: Of each sample: samples are drawn with replacement, as often as weights say, as
            many in an epoch as there are; see ``Weighted``, and ``class_balanced(labels)``.
        bucket_by: The length of each sample: those of a batch, of all shards together, have similar
            ones; see ``Buckets``.
        thread_safe: Whether several threads may run your code (source, ``transform``,
            ``batch_transform``, ``collate``, ``on_error``) at once. None: each object may say so by
            an attribute ``thread_safe``; code that says nothing runs in one thread at a time, in
            any number of processes. NumPy's arrays and functions, and what this package opens and
            decodes, need no declaration.

    Raises:
        TypeError: A source without random access, or an argument of the wrong type.
        ValueError: An argument out of range, or arrays of unequal lengths.

    A worker's exception arrives as its own type, with the sample's number in its notes; a worker
    process that dies again and again over one batch, as ``WorkerError``.

    ``len(seq)`` is the number of batches, ``seq[i]`` batch i of the current epoch, and
    ``for batch in seq`` one epoch, read ahead by the workers. The epoch advances when a pass has
    delivered its last batch; a pass that is abandoned is replayed whole. After a loop of your own
    over ``seq[i]``, ``seq.on_epoch_end()`` advances it. Threads may share a pass, each batch of
    which goes to one of them, and call ``seq[i]``.

    A subclass may have ``on_epoch_begin`` and ``on_epoch_end``, which are called once per epoch, on
    every backend; nothing is read beyond the end of an epoch then. What makes a batch is given to
    the constructor, and not overridden. A copy (``copy``, ``pickle``) has workers of its own, and
    its next pass begins where the next one of this does; ``state_dict()`` has the place within a
    pass. One that was pickled has no Dask client, but ``workers="auto"``.

    Example:
        >>> import numpy as np
        >>> from adapters import SafeSequence
        >>> seq = SafeSequence((np.arange(10), np.arange(10) % 2), batch_size=4, shuffle=True)
        >>> [len(x) for x, y in seq]
        [4, 4, 2]
    """

    _engine: Engine
    _progress: Progress
    _served: set[int] | None
    """Batches that Keras's own adapter has asked for since its epoch began; None before that."""
    _measured = False
    """Whether it is read to be measured, so that nothing else looks at its batches meanwhile."""

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
        check_arguments(
            batch_size=batch_size,
            transform=transform,
            batch_transform=batch_transform,
            collate=collate,
            seed=seed,
            shard=shard,
            on_error=on_error,
            workers=workers,
            shuffle=shuffle,
            flags={
                "drop_remainder": drop_remainder,
                "use_multiprocessing": use_multiprocessing,
            },
            max_queue_size=max_queue_size,
            thread_safe=thread_safe,
        )
        super().__init__(max_queue_size=int(max_queue_size))
        source = without_none(source)
        self._source: Source = (
            source._as_source() if isinstance(source, SafeSequence) else source_of(source)
        )
        if self._source.whole_batches:
            check_whole_batches(
                source,
                endless=self._source.endless,
                transform=transform,
                collate=collate,
                drop_remainder=drop_remainder,
                on_error=on_error,
                shuffle=shuffle,
            )
            batch_size = 1
        else:
            check_members(source)
        self._shard = ShardArgument(shard)
        size, part = int(batch_size), self._shard.part
        samples = None if self._source.endless else len(self._source)
        given = samples, size, shuffle, int(seed), bool(drop_remainder), part
        asked = {"weights": weights, "bucket_by": bucket_by, "tolerant": on_error != "raise"}
        order = order_of(*given, source=self._source, **asked)
        check_order(order)
        code = self._source.own_code if isinstance(source, Source) else (source,)
        used = generators_used(*code, transform, collate, batch_transform, on_error)
        self._plan = SourcePlan(
            self._source,
            order,
            transform,
            batch_transform,
            int(seed),
            on_error,
            self._hooked,
            used.certainly & {"numpy", "random"},
            order.fitted(collate),
            thread_safe=thread_safe,
        )
        self._settings = settings_of(workers, use_multiprocessing, max_queue_size, used.process)
        self._hook_calls = [0, 0]
        self._begin(0, 0)

    # --- batches ---

    def __len__(self) -> int:
        """Batches in an epoch.

        Raises:
            TypeError: The source has no end.
        """
        if self._endless:
            raise TypeError(
                "a SafeSequence of a source without an end (num_batches is None) has no length: "
                "give fit steps_per_epoch, or the source a __len__"
            )
        return len(self._settled()._plan.order)

    @property
    def num_batches(self) -> int | None:
        """Batches in an epoch; None if the source has no end."""
        return self._settled()._plan.num_batches

    def __bool__(self) -> bool:
        """There are batches, also where their number isn't known."""
        return True

    def __getitem__(self, index: int) -> Any:
        """Batch ``index`` of the current epoch, computed in the calling thread.

        Raises:
            IndexError: ``index`` is not in ``range(-len(seq), len(seq))``; below 0, if the source
                has no end.
        """
        number = index_of(index, self._settled()._plan.num_batches)
        self._engine.enter_epoch(self.epoch)
        key = self._progress.continuation.key(self.epoch, number)
        batch = self._engine.compute(key).batch
        self._progress.read_by_number()
        if self._served is not None:
            self._served.add(number)
        return batch

    def __iter__(self) -> Iterator[Any]:
        """One epoch, or what ``load_state_dict`` left of it; no end if the source has none."""
        self._settled()._shard.notice()
        return Iteration(self, self._engine, self._progress)

    # --- workers, as the constructor was asked for them ---

    @property
    def workers(self) -> Any:
        """What was asked for, ``"auto"``, a number or a Dask client; ``explain`` says more."""
        return 0 if called_by_keras() else self._settings.cluster or self._settings.workers

    @workers.setter
    def workers(self, value: Any) -> None:
        raise fixed("workers", value)

    @property
    def use_multiprocessing(self) -> bool:
        """What was asked for; with ``workers="auto"``, False leaves the choice open."""
        return not called_by_keras() and self._settings.use_multiprocessing

    @use_multiprocessing.setter
    def use_multiprocessing(self, value: Any) -> None:
        raise fixed("use_multiprocessing", value)

    @property
    def max_queue_size(self) -> int:
        """Batches that may be ready ahead of the trainer."""
        return self._settings.max_queue_size

    @max_queue_size.setter
    def max_queue_size(self, value: Any) -> None:
        raise fixed("max_queue_size", value)

    # --- the epoch, and the state of a pass ---

    @property
    def epoch(self) -> int:
        """The current epoch, from 0."""
        return self._progress.epoch

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the current one; a pass that is under way is not changed.

        Raises:
            ValueError: Below 0, or an epoch that a ``PyDataset`` with hooks of its own has left.
        """
        check_integer("epoch", epoch, 0)
        self._move(int(epoch), 0)

    def _move(self, epoch: int, step: int, rest: Continuation = WHOLE) -> None:
        source = self._plan.source
        if isinstance(source, SequenceSource):
            source.check_epoch(epoch)
        self._progress.move(epoch, step, rest)

    def state_dict(self) -> dict[str, int]:
        """Where the latest pass stands: two integers, ``{"epoch": e, "batch": i}``.

        ``i`` is the batch that comes next. With ``shard``, the state is ``{"epoch": e, "samples":
        n}``, the samples that all shards together have consumed in this epoch. It is the same on
        every shard, and any number of shards goes on from there, with any ``batch_size``: each
        sample that is left comes once, up to equal lengths of the shards. Batches that
        ``fit(shuffle=True)`` permutes, where the sequence itself doesn't shuffle, can only be
        counted: the state has ``"batch"`` then, and equal shards alone can go on. So it is with
        ``bucket_by`` and ``shuffle``, where shards go on whose batches make as many samples
        together, which the state says: ``{"epoch": e, "batch of 64": i}``.

        In a callback of ``fit``, that is the batch after the last one that was trained on; under a
        ``tf.distribute`` strategy, which reads ahead by itself, up to two batches more.
        """
        progress = self._settled()._progress
        epoch, step = progress.position()
        order, goes_on = self._plan.order, progress.continuation.covers(epoch, step)
        if order.elastic and progress.counts_samples and (goes_on or self._sharded):
            origin = progress.continuation.origin if goes_on else 0
            return {"epoch": epoch, "samples": order.consumed(step, origin)}
        grouped = step and self._sharded and not order.elastic
        return {"epoch": epoch, unit_of(order.consumed(1)) if grouped else "batch": step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Have the next pass start at that batch; the passes after it are whole again.

        Args:
            state: Of a sequence of the same samples, with the same ``shuffle`` and ``seed``. One
                with ``"samples"`` may be of other shards and another ``batch_size``.

        Raises:
            ValueError: Not a state of a sequence of this length, or of an epoch that a
                ``PyDataset`` with hooks of its own has left.
        """
        count = self._settled()._plan.num_batches
        order = self._plan.order
        if order.elastic and (at := samples_of(state, order.size, "sequence")) is not None:
            self._go_on(*at)
            return
        told = batches_of(state, order.consumed(1), order.size, "sequence")
        epoch, batch = told or position_of(state, lambda epoch: count, "sequence")
        if batch and self._sharded and told is None:
            self._shard.warn_of_batches(state, order.consumed(1), order.elastic)
        if batch and count is not None and batch >= count:  # What is left doesn't fill all shards.
            epoch, batch = epoch + 1, 0
        self._move(epoch, batch)

    @property
    def _sharded(self) -> bool:
        return self._shard.requested is not None or self._plan.order.shard[1] > 1

    def _go_on(self, epoch: int, samples: int) -> None:
        """Have the next pass start where so many samples of an epoch's order were consumed."""
        rest = self._plan.order.continuation(epoch, samples) if samples else WHOLE
        if rest is None:
            self._move(epoch + 1, 0)
        else:
            self._move(epoch, rest.step, rest)

    # --- what is shown to people ---

    @property
    def waits(self) -> Waits:
        """How long whoever reads the batches waited for each.

        In ``fit`` on JAX and PyTorch that is the trainer. On TensorFlow it is the thread that reads
        ahead for it; ``adapters.keras.WaitReport`` tells there what the trainer waited.
        """
        return self._engine.waits

    def explain(self) -> None:
        """Print how the batches are made, and by which workers: a line for each part of the way."""
        print("\n".join(explanation(self._settled()._plan, self._engine)))

    def peek(self, batches: int = 1) -> viewing.Peek:
        """The first samples of the current epoch's first batches, to be looked at.

        A notebook shows a contact sheet, or a table where there are no images; ``print`` shows a
        table, ``.save("sheet.png")`` writes the sheet. Nothing changes for who reads the sequence.
        """
        check_integer("batches", batches, 1)
        plan = self._settled()._plan
        count = int(batches) if self._endless else min(int(batches), len(plan.order))
        self._engine.enter_epoch(self.epoch)
        continuation = self._progress.continuation
        keys = (continuation.key(self.epoch, index) for index in range(count))
        return viewing.Peek(self._engine.compute(key).batch for key in keys)

    def replay(
        self,
        epoch: int,
        batch: int,
        *,
        shuffled: bool = False,
        state: dict[str, int] | None = None,
    ) -> replaying.Replay:
        """That very batch once more, without a log: ``print`` it, or write its ``sheet(path)``.

        Args:
            epoch: Of the batch, from 0.
            batch: Its number, as in ``seq[batch]``.
            shuffled: ``batch`` counts as ``fit(shuffle=True)`` does, which permutes the batches of
                a sequence whose samples aren't shuffled.
            state: What ``load_state_dict`` was given in the middle of that epoch, where it went on
                with other shards or another ``batch_size``. Not needed in the sequence that did.

        Raises:
            IndexError: ``batch`` is not in ``range(-len(seq), len(seq))``.
            ValueError: The source has epochs of its own, and is in another one; or the batch came
                before the state, of batches or shards of another size.
        """
        check_integer("epoch", epoch, 0)
        plan, epoch = self._settled()._plan, int(epoch)
        if epoch == self.epoch:
            self._engine.enter_epoch(epoch)  # Whose hooks may make its batches.
        number = index_of(batch, plan.num_batches)
        rest = continuation_of(self._progress.continuation, plan.order, epoch, state, "sequence")
        permuted = shuffled and not self._endless and not plan.order.shuffle
        key = key_of(rest, plan.order, epoch, number, plan.shuffled if permuted else None)
        return replaying.replay_batch(plan, key, self.epoch)

    # --- lifetime, copies, shards ---

    @property
    def _hooked(self) -> bool:
        """Whether the class has hooks of its own."""
        return own_hooks(type(self), SafeSequence)

    @property
    def _endless(self) -> bool:
        """Whether no epoch ends."""
        return self._source.endless

    def _begin(self, epoch: int, step: int, continuation: Continuation = WHOLE) -> None:
        """Stand at this batch, with workers of its own."""
        settings, num_batches = self._settings, self._plan.num_batches
        if self._endless and self._plan.own_epochs:
            # Only Keras knows when its epochs end, which change what comes after them.
            settings = dataclasses.replace(settings, workers=0, max_queue_size=1)
        self._hook_calls = list(self._hook_calls)
        if self._hooked:
            self._engine = HookedEngine(self._plan, settings, self)
            self._progress = Progress(num_batches, self._engine.leave_for)
        else:
            self._engine = Engine(self._plan, settings)
            self._progress = Progress(num_batches, self._engine.enter_epoch)
        self._progress.move(epoch, step, continuation)
        self._served = None
        opened.add(self)

    def _as_source(self) -> SequenceSource:
        """As the source of another sequence, which has workers of its own."""
        hooked = self if self._settled()._hooked else None
        return SequenceSource(Inner(self._plan, self.epoch, hooked), own_epochs=True)

    @property
    def _has_begun(self) -> bool:
        """Whether it has been constructed."""
        return "_engine" in self.__dict__ or "_position" in self.__dict__

    def close(self) -> None:
        """End the workers and free what they shared; batches that are held stay valid."""
        self._engine.close()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():  # Workers have ended with the main thread; modules may be gone.
            return
        # No weakref.finalize, which would keep the plan, and with it whoever's methods are in it.
        if (engine := self.__dict__.get("_engine")) is not None:
            engine.close()

    def __getstate__(self) -> dict[str, Any]:
        progress = self._settled()._progress
        state = {name: value for name, value in self.__dict__.items() if name not in _BEGUN}
        return {**state, "_position": (*progress.start, progress.continuation)}

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
        """Read the part that Keras gives to this process, or else the one that was asked for.

        Raises:
            ValueError: Both, and they differ.
        """
        check_given_shard(given, self._shard)
        shard = given or self._shard.part
        if shard == self._plan.order.shard:
            return
        order = self._plan.order.of_shard(shard)
        check_order(order)
        (epoch, step), before = self._progress.start, self._progress.continuation
        goes_on = before.covers(epoch, step)
        consumed = self._plan.order.consumed(step, before.origin if goes_on else 0)
        self._engine.close()
        self._plan = dataclasses.replace(self._plan, order=order)
        self._begin(epoch, step if order.size is None else min(step, len(order) - 1))
        if step and order.elastic:  # Batches of the order before, which others have other sizes of.
            self._go_on(epoch, consumed)

    def _settled(self: _Self) -> _Self:
        """Return itself, with the shard that it has from now on."""
        if self._shard.settle():
            self._take_shard(None)
        return self

    # --- hooks ---

    # Keras calls these two when its own adapter is in use, see installation.install. A subclass's
    # own are called by HookedEngine, and whoever else calls them reaches the accounts alone.

    def on_epoch_begin(self) -> None:
        """For subclasses: called once per epoch, before its first batch is computed."""
        if not is_running(self):
            self._begin_epoch(called_by_keras())

    def on_epoch_end(self) -> None:
        """Begin the next epoch, after a loop of your own over ``seq[i]``.

        Nothing happens within ``fit``, ``evaluate`` and ``predict``, or where ``for batch in seq``
        has just come to the end of the epoch. For subclasses: called once per epoch, after its last
        batch has been delivered, or by such a loop.
        """
        if not is_running(self):
            self._end_epoch(called_by_keras())

    def _begin_epoch(self, by_keras: bool) -> None:
        """Count which batches Keras asks for, or call hooks that are due before the first batch."""
        if by_keras:
            notice_own_adapter()
            self._served = set()
        elif not is_read_by_a_call(self._settled()._progress):
            self._engine.enter_epoch(self.epoch)

    def _end_epoch(self, by_keras: bool) -> None:
        """Begin the next epoch, for Keras if it has asked for every batch of this one."""
        if by_keras:
            if self._served is not None and len(self._served) == self._plan.num_batches:
                self._progress.advance()
            self._served = None
        elif is_read_by_a_call(self._settled()._progress):
            return
        elif self._endless:
            turn(self._engine, self._source)
        else:
            calls = self._hook_calls
            if self._hooked and calls == [self.epoch, self.epoch]:
                calls[0] += 1  # An epoch that nothing was read of has no begin.
            self._progress.end_epoch()
