"""``SafeSequence``: the data set that goes into ``fit``, ``evaluate`` and ``predict``."""

from __future__ import annotations

import copy
import operator
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Literal

import keras

from adapters.ablation import Ablations, ablations_of
from adapters.arguments import check_integer
from adapters.assemble import OnError, Plan, aligned_empty
from adapters.engine import Engine, Settings, Stream, Waits
from adapters.keras.arguments import check_arguments, check_order, index_of
from adapters.keras.progress import Pass, Progress
from adapters.order import Order
from adapters.sources import AnySource, SequenceSource, as_source

_HOOKS = ("on_epoch_begin", "on_epoch_end")
# Sequences with workers must be closed before the interpreter takes the threads down under them:
# TensorFlow destroys its iterators then, and waits for the batch that one of them waits for.
_open: weakref.WeakSet[SafeSequence] = weakref.WeakSet()
calls_of_threads: set[threading.Event] = set()
"""What Python waits for before it exits, other than in daemon threads: calls of ``fit``."""


class SafeSequence(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches for Keras: thread-safe, process-safe, and the same for every number of workers.

    Args:
        source: An array, or a tuple ``(x, y)`` or ``(x, y, sample_weight)``, or a dict (nested
            too) of arrays of equal length; or an object with ``__len__`` and ``__getitem__`` that
            returns one sample (``__getitems__(list of int)`` is used where it exists); or what
            ``open_records`` returns, or the path of a record file or a glob, whose records are
            images with labels where the first one is; or a Keras ``PyDataset`` whose items are
            whole batches, which is asked by one thread at a time unless it has ``thread_safe =
            True``.
        batch_size: Samples in a batch. A ``PyDataset`` has its own.
        transform: ``transform(sample)`` or ``transform(sample, rng)`` makes a sample of a sample.
        batch_transform: ``batch_transform(batch)`` or ``batch_transform(batch, rng)`` makes a batch
            of a collated batch; much faster than ``transform`` where NumPy can do it to all
            samples at once. ``rng`` is a ``numpy.random.Generator`` that depends on the seed, the
            epoch and the number of the sample or batch alone.
        shuffle: A new order of the samples in every epoch, in O(1) memory.
        seed: Of the order and of the generators.
        drop_remainder: Leave out the last batch of an epoch when it isn't full.
        shard: ``(index, count)``: take that part of the one global order. All shards have the same
            number of samples; up to ``count - 1`` samples are left out per epoch.
        on_error: For a sample that can't be fetched or transformed: ``"raise"``; ``"skip"``, take
            the sample with the next higher number that can be (counted, and logged at the end of
            the epoch); or ``on_error(exception, sample_number)`` returns a finished sample.
        workers: ``"auto"`` measures the first batches and decides; 0 computes each batch when it is
            asked for; more compute that many at a time (processes beyond the CPUs: where the work
            turns out to wait).
        use_multiprocessing: Workers are processes. Source and transforms are sent to them once, by
            cloudpickle; arrays in them are shared.
        max_queue_size: Batches that may be ready ahead of the trainer; bounds the memory. Of more
            workers than that, some may have nothing to do.

    Raises:
        TypeError: A source without random access, or an argument of the wrong type.
        ValueError: An argument out of range, or arrays of unequal lengths.

    A worker's exception arrives as its own type, with the sample's number in its notes; a worker
    process that dies again and again over one batch, as ``WorkerError``.

    ``len(seq)`` is the number of batches, ``seq[i]`` batch i of the current epoch, and
    ``for batch in seq`` one epoch, read ahead by the workers. The epoch advances when a pass has
    delivered its last batch; a pass that is abandoned is replayed whole. One pass is for one
    consumer; ``seq[i]`` may be called from any thread.

    Example:
        >>> import numpy as np
        >>> from adapters import SafeSequence
        >>> seq = SafeSequence((np.arange(10), np.arange(10) % 2), batch_size=4, shuffle=True)
        >>> [len(x) for x, y in seq]
        [4, 4, 2]
    """

    workers_keyword = "workers"

    def __init__(
        self,
        source: Any,
        batch_size: int = 32,
        *,
        transform: Callable[..., Any] | None = None,
        batch_transform: Callable[..., Any] | None = None,
        shuffle: bool = False,
        seed: int = 0,
        drop_remainder: bool = False,
        shard: tuple[int, int] | None = None,
        on_error: OnError = "raise",
        workers: int | Literal["auto"] = "auto",
        use_multiprocessing: bool = False,
        max_queue_size: int = 10,
    ) -> None:
        check_arguments(
            batch_size=batch_size,
            transform=transform,
            batch_transform=batch_transform,
            seed=seed,
            shard=shard,
            on_error=on_error,
            workers=workers,
            flags={
                "shuffle": shuffle,
                "drop_remainder": drop_remainder,
                "use_multiprocessing": use_multiprocessing,
            },
            max_queue_size=max_queue_size,
        )
        # What Keras sees: its own enqueuer must not come on top of our workers.
        super().__init__(workers=1, use_multiprocessing=False, max_queue_size=max_queue_size)
        if isinstance(source, tuple) and not hasattr(source, "_fields"):
            while source and source[-1] is None:  # (x, y, None), as Keras has it.
                source = source[:-1]
        self._source = _as_source(source)
        if isinstance(self._source, SequenceSource):
            if transform is not None:
                raise ValueError(
                    "transform works on single samples, and source gives whole batches "
                    f"({type(source).__name__}): use batch_transform"
                )
            if drop_remainder or on_error != "raise":
                raise ValueError(
                    "drop_remainder and on_error are about single samples, and source gives whole "
                    f"batches ({type(source).__name__}): leave them out, got drop_remainder="
                    f"{drop_remainder!r}, on_error={on_error!r}"
                )
            batch_size = 1
        elif isinstance(source, tuple) and len(source) > 3:
            raise ValueError(
                "a tuple as source must be (x,), (x, y) or (x, y, sample_weight), got "
                f"{len(source)} members; put several inputs into a tuple or dict of their own"
            )
        order = Order(
            len(self._source),
            int(batch_size),
            bool(shuffle),
            int(seed),
            bool(drop_remainder),
            (int(shard[0]), int(shard[1])) if shard is not None else (0, 1),
        )
        check_order(order)
        self._plan = Plan(self._source, order, transform, batch_transform, int(seed), on_error)
        self.settings = Settings(workers, bool(use_multiprocessing), int(max_queue_size))
        self._begin()

    def _begin(self) -> None:
        self._engine = Engine(self._plan, self.settings)
        self._progress = Progress(len(self._plan), self._engine.enter_epoch)
        self._served: set[int] | None = None
        self._finalizer = weakref.finalize(self, self._engine.close)
        _open.add(self)

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self._plan)

    @property
    def num_batches(self) -> int:
        """Batches in an epoch."""
        return len(self._plan)

    def __getitem__(self, index: int) -> Any:
        """Batch ``index`` of the current epoch, computed in the calling thread.

        Raises:
            IndexError: ``index`` is not in ``range(-len(seq), len(seq))``.
        """
        number = index_of(index, len(self))
        self._engine.enter_epoch(self.epoch)
        batch = self._plan.batch(self.epoch, number, aligned_empty).batch
        if self._served is not None:
            self._served.add(number)
        return batch

    def __iter__(self) -> Iterator[Any]:
        """One epoch, or what ``load_state_dict`` left of it."""
        return _Epoch(self)

    @property
    def epoch(self) -> int:
        """The current epoch, from 0."""
        return self._progress.epoch

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the current one; a pass that is under way is not changed."""
        check_integer("epoch", epoch, 0)
        self._progress.move(int(epoch), 0)

    def state_dict(self) -> dict[str, int]:
        """Where the latest pass stands: ``{"epoch": e, "batch": i}``, the batch that comes next.

        In a callback of ``fit``, that is the batch after the last one that was trained on; under a
        ``tf.distribute`` strategy, which reads ahead by itself, up to two batches more.
        """
        epoch, step = self._progress.position()
        return {"epoch": epoch, "batch": step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Have the next pass start at that batch; the passes after it are whole again.

        Raises:
            ValueError: Not a state of a sequence of this length.
        """
        try:
            epoch, step = operator.index(state["epoch"]), operator.index(state["batch"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"state must be what state_dict() returned, got {state!r}") from error
        if epoch < 0 or not 0 <= step < len(self):
            raise ValueError(
                f"state must have epoch >= 0 and batch in range({len(self)}), got {state!r}: it "
                "belongs to a sequence of another length or batch_size"
            )
        self._progress.move(epoch, step)

    @property
    def waits(self) -> Waits:
        """How long whoever reads the batches waited for each.

        In ``fit`` on JAX and PyTorch that is the trainer. On TensorFlow it is the thread that reads
        ahead for it; ``adapters.keras.WaitReport`` tells there what the trainer waited.
        """
        return self._engine.waits

    def twin(self) -> SafeSequence:
        """The same sequence once more, where this one stands, with workers of its own."""
        twin = copy.copy(self)
        twin._begin()
        twin._progress.move(*self._progress.start)
        return twin

    def ablations(self) -> Ablations:
        """What is left of the work without a part of it, for ``adapters.diagnose``."""
        return ablations_of(self._plan, self.epoch)

    def close(self) -> None:
        """End the workers and free what they shared; batches that are held stay valid."""
        self._finalizer()

    def __enter__(self) -> SafeSequence:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What Keras calls when its own adapter is in use, see installation.install.

    def on_epoch_begin(self) -> None:
        """Begin to count which batches Keras asks for."""
        self._served = set()

    def on_epoch_end(self) -> None:
        """Advance the epoch if Keras has asked for every batch since ``on_epoch_begin``."""
        if self._served is not None and len(self._served) == len(self):
            self._progress.move(self.epoch + 1, 0)
            self._engine.enter_epoch(self.epoch)
        self._served = None


class _Epoch:
    """``iter(seq)``: keeps the sequence, and with it the workers, alive."""

    def __init__(self, sequence: SafeSequence) -> None:
        self._sequence = sequence
        self._progress = sequence._progress
        self._engine = sequence._engine
        self._pass: Pass | None = None
        self._stream: Stream | None = None

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> Any:
        if self._pass is None:
            self._pass = self._progress.begin()
            self._stream = self._engine.stream(self._pass.epoch, self._pass.step, False)
        if self._stream is None or not self._pass.left:
            self._end()
            raise StopIteration
        try:
            batch = self._stream.next()
        except BaseException as error:
            self._stream.close()
            self._stream = None
            raise_as_itself(error)
        self._progress.hand_out(self._pass)
        return batch

    def _end(self) -> None:
        stream, self._stream = self._stream, None
        if self._pass is not None and stream is not None:
            self._progress.settle(self._pass)
            if self._pass.left:
                stream.close()
            else:
                self._engine.park(stream)

    def __del__(self) -> None:
        if getattr(self, "_stream", None) is not None:
            self._end()


def raise_as_itself(error: BaseException) -> None:
    """Raise an exception out of an iterator, where ``StopIteration`` would end it in silence."""
    try:
        if isinstance(error, StopIteration):
            raise RuntimeError("source or transform raised StopIteration") from error
        raise error
    finally:
        del error  # The traceback would refer to it through this frame, in a circle.


class _Inner:
    """A ``SafeSequence`` that is the source of another one, without workers of its own."""

    thread_safe = True

    def __init__(self, plan: Plan, epoch: int) -> None:
        self._plan = plan
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, index: int) -> Any:
        return self._plan.batch(self._epoch, index, aligned_empty).batch

    def on_epoch_end(self) -> None:
        self._epoch += 1


def _as_source(source: Any) -> AnySource:
    if isinstance(source, SafeSequence):
        return SequenceSource(_Inner(source._plan, source.epoch), own_epochs=True)
    bases = [f"{base.__module__}.{base.__name__}" for base in type(source).__mro__]
    if isinstance(source, keras.utils.PyDataset):
        own = any(
            getattr(type(source), hook, None) is not getattr(keras.utils.PyDataset, hook, None)
            for hook in _HOOKS
        )
        return SequenceSource(source, own_epochs=own)
    if any(
        base.startswith(("keras.", "tf_keras.")) and base.endswith(".Sequence") for base in bases
    ):
        return SequenceSource(source, own_epochs=True)
    return as_source(source)


def _close_all() -> None:
    for ended in list(calls_of_threads):
        ended.wait()
    for sequence in list(_open):
        sequence.close()


# Before the executors of concurrent.futures and loky are taken down, which atexit is too late for.
getattr(threading, "_register_atexit", None) and threading._register_atexit(_close_all)  # type: ignore[attr-defined]
