"""Readers of a sequence: the user's own loop, and Keras's trainers with and without a GPU."""

from __future__ import annotations

import collections
import time
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn

import keras

from adapters.batch.plan import WHOLE, Assembled
from adapters.engine import Reading, Stream, raise_as_itself
from adapters.errors import ClosedError
from adapters.keras import device
from adapters.keras.internals import is_end_of_data
from adapters.keras.progress import Cursor, Progress, is_read_by_a_call

# Batches are gathered while the quickest of the latest fetches stays below this. The minimum counts
# because single fetches are slow on a busy machine.
QUICK_SECONDS = 0.002
_LOOKED_AT = 4
_FETCHED_AT_ONCE = 2


class Iteration(Reading):
    """Iterator returned by ``iter(seq)``. It keeps the sequence alive, and with it the workers."""

    def __init__(self, sequence: Any) -> None:
        super().__init__(sequence._engine)
        self._sequence = sequence
        self._progress: Progress = sequence._progress
        self._cursor: Cursor | None = None

    def _next(self) -> Any:
        batch = self._fetch()
        assert self._cursor is not None
        self._progress.hand_out(self._cursor)
        return batch

    def _begin(self) -> Stream:
        sequence = self._sequence._with_length()
        self._engine, self._progress = sequence._engine, sequence._progress
        if self._engine.plan.check_length():
            self._engine.refresh()
        secondary = is_read_by_a_call(self._progress)
        start = (self._progress.next_start()[0], 0) if secondary else None
        self._cursor = cursor = self._progress.begin(start, secondary)
        self._left = cursor.left
        if not secondary:
            self._engine.ahead_elsewhere = 0  # TensorFlow's thread may have read before.
        resumed = WHOLE if secondary else self._progress.resumed
        return self._engine.stream(cursor.epoch, cursor.step, False, resumed)

    def close(self) -> None:
        """Drop the batches in flight, and advance the epoch if the pass has reached its end."""
        if not self._over and self._cursor is not None:
            self._progress.advance_past(self._cursor)
        super().close()


class Batches(Reading):
    """Iterator that Keras reads, on TensorFlow maybe from one of TensorFlow's threads.

    TensorFlow may keep it long after the adapter is gone, so it refers to the adapter weakly.
    """

    def __init__(self, adapter: Any) -> None:
        super().__init__(adapter._engine)
        self._owner = weakref.ref(adapter)
        self._cursor: Cursor | None = None
        self._finished = False

    @property
    def _adapter(self) -> Any:
        adapter = self._owner()
        assert adapter is not None
        return adapter

    def _next(self) -> Any:
        adapter = self._owner()  # Keeps the adapter alive while a reader waits for a batch here.
        if adapter is None:
            raise StopIteration
        batch = self._fetch()
        assert self._cursor is not None
        adapter._progress.hand_out(self._cursor)
        return batch

    def _begin(self) -> Stream:
        adapter = self._adapter
        self._cursor, stream = adapter._begin(self)
        if not adapter._endless:
            self._left = self._cursor.left
        return stream  # type: ignore[no-any-return]

    @property
    def _parks(self) -> bool:
        if self._finished:
            return True
        changes_between_epochs = self._engine.plan.changes_between_epochs
        return self._cursor is not None and not (self._cursor.left or changes_between_epochs)

    def _made(self, assembled: Assembled) -> Any:
        return self._adapter._prepared(assembled, self._cursor)

    def _finish(self) -> None:
        """Handle the end of the epoch's batches; on TensorFlow, the trainer may be behind."""
        adapter = self._adapter
        self._finished = True
        if adapter.trains_now and not adapter.reads_elsewhere:
            adapter._progress.advance_past(self._cursor)
        self.close()

    def _fail(self, error: BaseException) -> NoReturn:
        adapter = self._adapter
        try:
            if not (adapter.reads_elsewhere or is_end_of_data(error)):
                raise_as_itself(error)
            if not isinstance(error, ClosedError):
                adapter.errors[:] = [error]
            raise StopIteration from error
        finally:
            del error  # Break the reference cycle error -> traceback -> this frame.


class StagedBatches(Batches):
    """``Batches`` that are sent to JAX's GPU before the trainer asks for them.

        fetch --> gather in host memory --> transfer together --> slice on the device, hand out

    A transfer of ten small batches costs the interpreter about as much as one of a single batch, so
    up to ``most`` small batches of equal shapes share one. Only batches that are ready are
    gathered. Staged batches don't count as handed out, errors are raised at the place of their
    batch, and ``max_queue_size`` includes staged batches.
    """

    def __init__(self, adapter: Any, most: int) -> None:
        super().__init__(adapter)
        self._most = most
        self._gathered: collections.deque[tuple[Any, Any]] = collections.deque()
        """Batches in host memory, each after its kind."""
        self._kind: tuple[Any, int] = None, 1
        """Kind of the latest batch, and the most of that kind in one transfer."""
        self._sent: Iterator[Any] = iter(())
        self._left_of_sent = 0
        self._fetching = False
        """True while a batch is being fetched, which may fail and end the pass."""
        self._took: collections.deque[float] = collections.deque(maxlen=_LOOKED_AT)
        self._errors: list[BaseException] = []
        """Error of the batch after the staged ones."""

    @property
    def _staged(self) -> int:
        return self._left_of_sent + len(self._gathered)

    def _fetch(self) -> Any:
        """Return the next batch, staged if there is one; raise its error if it had one."""
        if self._engine.closed and not self._over:
            self._drop()
        try:
            if not self._staged:
                if self._errors:
                    raise self._errors.pop()
                self._gather(ahead=0)
            if not self._left_of_sent:
                # Single batches, unless a group is full and of one kind.
                full = len(self._gathered) == self._kind[1] and not self._differ
                group = [self._gathered.popleft()[1] for _ in range(self._kind[1] if full else 1)]
                self._sent, self._left_of_sent = device.transferred(group), len(group)
            self._left_of_sent -= 1
            batch = next(self._sent)
            # Building a model takes one batch, and nothing may be read after it.
            if self._cursor is not None and self._cursor.taken:
                for _ in range(_FETCHED_AT_ONCE):
                    if self._may_gather:
                        self._gather(ahead=1)
            return batch
        finally:
            self._engine.staged = self._staged

    def close(self) -> None:
        """Drop the batches in flight and the staged ones; the end of a pass leaves the latter."""
        if not self._fetching:
            self._drop()
            self._engine.staged = 0
        super().close()

    def _drop(self) -> None:
        self._sent, self._left_of_sent = iter(()), 0
        self._errors.clear()
        self._gathered.clear()

    @property
    def _differ(self) -> bool:
        return bool(self._gathered) and self._gathered[0][0] != self._gathered[-1][0]

    @property
    def _may_gather(self) -> bool:
        """True if another batch is ready or quickly made, and the group takes it."""
        ready = bool(self._left) and self._stream is not None and self._stream.ready
        ready &= min(self._took) <= QUICK_SECONDS
        ended = self._errors or self._engine.closed
        return ready and self._staged < self._kind[1] > 1 and not (ended or self._differ)

    def _gather(self, ahead: int) -> None:
        """Fetch a batch; ``ahead`` is 1 if the trainer hasn't asked for it."""
        self._engine.staged = self._staged + ahead
        self._fetching, began = True, time.perf_counter()
        try:
            batch = super()._fetch()
        except ClosedError:
            self._drop()
            raise
        except Exception as error:
            if not ahead:
                raise
            self._errors.append(error)
        else:
            self._kind = device.kind_of(batch, self._most)
            self._gathered.append((self._kind, batch))
        finally:
            self._fetching = False
            self._took.append(time.perf_counter() - began)


class StockView(keras.utils.PyDataset):  # type: ignore[misc]
    """``SafeSequence`` for Keras's own adapter: the same batches, without workers.

    The epoch advances when Keras has read every batch of one.
    """

    def __init__(self, sequence: Any) -> None:
        super().__init__()
        self._sequence = sequence
        self._served: set[int] | None = None

    @property
    def num_batches(self) -> int | None:
        """Number of batches in an epoch; None if it is endless."""
        return self._sequence.num_batches  # type: ignore[no-any-return]

    def __getitem__(self, index: int) -> Any:
        batch = self._sequence[index]
        if self._served is not None:
            self._served.add(index)
        return batch

    def on_epoch_begin(self) -> None:
        """Start counting: Keras has read batches before, to learn their shapes."""
        self._served = set()

    def on_epoch_end(self) -> None:
        """Advance the epoch of the sequence, unless batches of this one are left."""
        if self._served is not None and len(self._served) == self.num_batches:
            self._sequence._progress.advance()
        self._served = None
