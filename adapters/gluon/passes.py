"""One pass over a loader: from a stream of the engine to batches as MXNet gives them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from mxnet.util import is_np_array

from adapters.batch.order import DrawnOrder
from adapters.engine import Exhausted, Stream
from adapters.gluon.lending import take_back
from adapters.gluon.randomness import fresh_epoch

if TYPE_CHECKING:
    from adapters.gluon.loader import DataLoader

# Arrays that are looked at when a pass ends: those of its last batches are among them.
_LEFT_BEHIND = 1000


@dataclass
class Begun:
    """A pass whose order is drawn.

    Args:
        stream: Its batches; None where there are none.
        left: How many; None where that isn't known.
    """

    stream: Stream | None
    left: int | None = None

    def read_ahead(self) -> None:
        """Have workers begin with the first batches."""
        if self.stream is not None:
            self.stream.read_ahead()

    def close(self) -> None:
        """Nobody wants it."""
        if self.stream is not None:
            self.stream.close()


def begin(loader: DataLoader) -> Begun:
    """Begin with the next pass over a loader: draw its order, compute nothing yet."""
    plan, engine = loader._plan, loader._engine
    plan.begin_pass()
    if plan.live:
        engine.refresh()
    number, sampler = next(loader._passes), loader._batch_sampler
    if not isinstance(plan.order, DrawnOrder):
        size = len(sampler)
        return Begun(engine.stream(number, 0, False) if size else None, size)
    batches = _lists(sampler)
    if loader._fresh:
        number, batches = fresh_epoch(number, batches, loader._generators)
    return Begun(engine.drawn_stream(number, batches, _length(sampler)))


class Pass:
    """``iter(loader)``: keeps the loader, and with it the workers, alive.

    Nothing happens before the first batch is asked for, as in MXNet.
    """

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._engine = loader._engine
        self._stream: Stream | None = None
        self._begun = False
        self._ended = False
        self._left: int | None = None
        self._ahead: list[Any] = []

    def __iter__(self) -> Pass:
        return self

    def __next__(self) -> Any:
        if self._ended and not self._ahead:
            raise StopIteration
        if not self._begun:
            self._begin()
        batch = self._ahead.pop() if self._ahead else self._fetch()
        if isinstance(batch, BaseException):
            raise batch
        if self._loader._move.ahead and not self._ended and self._stream and self._stream.ready:
            try:
                self._ahead.append(self._fetch())
            except StopIteration:
                pass
            except Exception as error:  # Belongs to the next batch.
                self._ahead.append(error)
        return batch

    next = __next__

    def __len__(self) -> int:
        return len(self._loader)

    def _begin(self) -> None:
        self._begun = True
        loader = self._loader
        begun, loader._begun = loader._begun, None
        if begun is None:
            begun = begin(loader)
        self._stream, self._left = begun.stream, begun.left

    def _fetch(self) -> Any:
        stream = self._stream
        if stream is None or self._left == 0:
            self._finish()
            raise StopIteration
        self._loader._plan.consumed_here()
        try:
            *arrays, skeleton = stream.next()
            batch = skeleton.built(arrays, is_np_array())
            batch = self._loader._move(batch)
        except Exhausted:
            problem = getattr(stream, "problem", None)
            if problem is None or isinstance(problem, StopIteration):
                self._finish()
                raise StopIteration from None
            self._end()
            raise problem from None
        except BaseException as error:
            self._end()
            if isinstance(error, StopIteration):
                raise RuntimeError("the data set or a transform raised StopIteration") from error
            raise
        if self._left is not None:
            self._left -= 1
        return batch

    def _end(self) -> None:
        self._ended = True
        self._loader._plan.no_longer_consumed_here()
        stream, self._stream = self._stream, None
        if stream is None:
            return
        if self._left == 0:
            self._engine.park(stream)
        else:
            stream.close()
        self._engine.rest()
        take_back(_LEFT_BEHIND)

    def _finish(self) -> None:
        """All batches were delivered."""
        self._end()
        loader = self._loader
        if loader.auto_reload and loader._begun is None and not self._engine.closed:
            loader.refresh()

    def __del__(self) -> None:
        if getattr(self, "_stream", None) is not None:
            self._end()


def _lists(sampler: Any) -> Iterator[Any]:
    """Batches of a batch sampler, which may be anything that can be iterated over once."""
    for samples in sampler:
        yield samples if isinstance(samples, (list, np.ndarray)) else list(samples)


def _length(sampler: Any) -> int | None:
    try:
        return len(sampler)
    except (TypeError, NotImplementedError):
        return None
