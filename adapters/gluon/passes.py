"""One pass over a loader: from a stream of the engine to batches as MXNet gives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from mxnet.util import is_np_array

from adapters.engine import Exhausted, Stream
from adapters.gluon.lending import take_back
from adapters.gluon.samplers import OrderBatchSampler

if TYPE_CHECKING:
    from adapters.gluon.loader import Loader

# Arrays that are looked at when a pass ends: those of its last batches are among them.
_LEFT_BEHIND = 1000


class Pass:
    """``iter(loader)``: keeps the loader, and with it the workers, alive.

    Nothing happens before the first batch is asked for, as in MXNet.
    """

    def __init__(self, loader: Loader) -> None:
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
        loader, engine = self._loader, self._engine
        loader._plan.begin_pass()
        if loader._plan.live:
            engine.refresh()
        number = next(loader._passes)
        sampler = loader._batch_sampler
        if isinstance(sampler, OrderBatchSampler):
            self._left = len(sampler)
            self._stream = engine.stream(number, 0, False) if self._left else None
        else:
            self._stream = engine.drawn_stream(number, _lists(sampler))

    def _fetch(self) -> Any:
        stream = self._stream
        if stream is None or self._left == 0:
            self._end()
            raise StopIteration
        self._loader._plan.consumed_here()
        try:
            *arrays, skeleton = stream.next()
            batch = skeleton.built(arrays, is_np_array())
            batch = self._loader._move(batch)
        except Exhausted:
            problem = getattr(stream, "problem", None)
            self._end()
            raise (problem if problem is not None else StopIteration) from None
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
        take_back(_LEFT_BEHIND)

    def __del__(self) -> None:
        if getattr(self, "_stream", None) is not None:
            self._end()


def _lists(sampler: Any) -> Iterator[Any]:
    """Batches of a batch sampler, which may be anything that can be iterated over once."""
    for samples in sampler:
        yield samples if isinstance(samples, (list, np.ndarray)) else list(samples)
