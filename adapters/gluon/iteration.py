"""One pass over a loader: batches in MXNet's form, on the requested device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import mxnet as mx
from mxnet.util import is_np_array

from adapters.batch.order import DrawnOrder
from adapters.batch.plan import Assembled
from adapters.engine import Reading, Stream
from adapters.gluon.ndarrays import map_arrays, take_back
from adapters.gluon.samplers import count_of, drawn_batches

# Lent arrays to check at the end of a pass, enough to include those of its last batches.
_LEFT_BEHIND = 1000


class Iteration(Reading):
    """Iterator returned by ``iter(loader)``. It keeps the loader and its workers alive.

    Nothing happens before the first batch is requested.
    """

    def __init__(self, loader: Any) -> None:
        super().__init__(loader._engine)
        self._loader = loader
        self._epoch, self._delivered = -1, 0  # Of a pass that hasn't begun.
        self._count: int | None = None  # Of the epoch's batches, if known.
        self._ahead: list[Any] = []

    def _next(self) -> Any:
        batch = self._ahead.pop() if self._ahead else self._fetch()
        if isinstance(batch, BaseException):
            raise batch
        self._delivered += 1
        if self._loader._copies_ahead and self._stream is not None and self._stream.ready:
            try:
                self._ahead.append(self._fetch())
            except StopIteration:
                pass
            except Exception as error:  # Belongs to the next batch.
                self._ahead.append(error)
        self._loader._position = self._position
        return batch

    next = Reading.__next__

    def __len__(self) -> int:
        return len(self._loader)

    @property
    def _position(self) -> tuple[int, int]:
        """``(epoch, batch)`` after the last delivered batch."""
        if self._delivered == self._count:
            return self._epoch + 1, 0
        return self._epoch, self._delivered

    def _begin(self) -> Stream | None:
        """Start the stream. The pass after this one is the whole next epoch."""
        loader, engine = self._loader, self._engine
        plan, sampler = loader._plan, loader._batch_sampler
        plan.begin_pass()
        if plan.changes_between_epochs:
            engine.refresh()
        self._epoch, self._delivered = epoch, first = loader._next
        self._count = count = count_of(sampler, epoch)
        loader._position = self._position
        loader._next = epoch + 1, 0
        if epoch != loader._sampler_epoch:  # A pass within another one.
            loader._set_sampler_epoch(epoch)
        if isinstance(plan.order, DrawnOrder):
            batches = drawn_batches(sampler, epoch, first, plan.thread_safe)
            return engine.drawn_stream(epoch, batches, count, first)
        if not count:
            return None
        self._left = count - first
        return engine.stream(epoch, first, False, loader._resumed)

    def _made(self, assembled: Assembled) -> Any:
        *arrays, treedef = assembled.batch
        del assembled
        return self._loader._move(treedef.built(arrays, is_np_array()))

    def _finish(self) -> None:
        before, self._count = self._position, self._delivered
        if self._loader._position == before:
            self._loader._position = self._position
        self.close()

    def close(self) -> None:
        """Drop the batches in flight. A batch already moved to the device is still delivered."""
        if self._over:
            return
        super().close()
        if self._epoch < 0:
            return
        self._engine.pause()
        take_back(_LEFT_BEHIND)
        # Set here, not before the next pass, so that a later set_epoch by the user counts.
        self._loader._set_sampler_epoch(self._loader._next[0])


def mover(ctx: Any, pin_memory: bool | Literal["auto"], pin_device_id: int) -> Callable[[Any], Any]:
    """Return the function that moves batches to pinned memory and to a device, if requested.

    MXNet copies asynchronously: using the arrays waits for it.
    """
    if pin_memory == "auto":
        pin_memory = ctx is not None and ctx.device_type == "gpu"
    pinned = mx.cpu_pinned(pin_device_id) if pin_memory else None

    def move(batch: Any) -> Any:
        if pinned is not None:  # This makes lists of tuples, as in MXNet.
            batch = map_arrays(lambda array: array.as_in_context(pinned), batch, lists=True)
        if ctx is not None:
            batch = map_arrays(lambda array: array.as_in_context(ctx), batch)
        return batch

    return move
