"""One pass over a loader: from a stream of the engine to batches as MXNet gives them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from mxnet.util import is_np_array

from adapters.batch.key import Continuation
from adapters.batch.order import DrawnOrder
from adapters.engine import Engine, Reading, Stream
from adapters.gluon.devices import Mover
from adapters.gluon.dlpack import take_back
from adapters.gluon.plan import GluonPlan
from adapters.gluon.progress import Account, Progress
from adapters.gluon.samplers import EpochBatchSampler, drawn_batches, length_of, tell_epoch

# Arrays that are looked at when a pass ends: those of its last batches are among them.
_LEFT_BEHIND = 1000


@dataclass
class Begun:
    """A pass whose order is drawn.

    Args:
        stream: Its batches; None where there are none.
        account: Which they are.
        endless: The stream goes on behind the last of them.
    """

    stream: Stream | None
    account: Account
    endless: bool = False

    @property
    def left(self) -> float:
        """Batches that the stream is to be read for, if it doesn't end by itself."""
        count = self.account.count
        return count - self.account.first if self.endless and count is not None else math.inf

    def read_ahead(self) -> None:
        """Have workers begin with the first batches."""
        if self.stream is not None:
            self.stream.read_ahead()

    def close(self) -> None:
        """Nobody wants it."""
        if self.stream is not None:
            self.stream.close()


class Loader(Protocol):
    """What a pass needs of the loader that it goes over."""

    _plan: GluonPlan
    _engine: Engine
    _batch_sampler: Any
    _progress: Progress
    _move: Mover
    _begun: Begun | None
    _continuation: Continuation
    auto_reload: bool

    def __len__(self) -> int: ...

    def refresh(self) -> None:
        """Begin with the next pass anew."""


def begin(loader: Loader) -> Begun:
    """Begin with the next pass over a loader: draw its order, compute nothing yet."""
    plan, engine = loader._plan, loader._engine
    plan.begin_pass()
    if plan.live:
        engine.refresh()
    sampler, number = loader._batch_sampler, loader._progress.next[0]
    account = loader._progress.begin(length_of(sampler, number))
    if isinstance(sampler, EpochBatchSampler):
        sampler.set_epoch(number)
    if not isinstance(plan.order, DrawnOrder):
        stream = None
        if account.count:
            stream = engine.stream(number, account.first, False, loader._continuation)
        return Begun(stream, account, endless=True)
    batches = drawn_batches(sampler, number, account.first, plan.thread_safe)
    stream = engine.drawn_stream(number, batches, account.count, account.first)
    return Begun(stream, account)


class Iteration(Reading):
    """``iter(loader)``: keeps the loader, and with it the workers, alive.

    Nothing happens before the first batch is asked for, as in MXNet.
    """

    def __init__(self, loader: Loader) -> None:
        super().__init__(loader._engine)
        self._loader = loader
        self._pass: Begun | None = None
        self._ahead: list[Any] = []

    def _next(self) -> Any:
        batch = self._ahead.pop() if self._ahead else self._fetch()
        if isinstance(batch, BaseException):
            raise batch
        if self._loader._move.ahead and self._stream is not None and self._stream.ready:
            try:
                self._ahead.append(self._fetch())
            except StopIteration:
                pass
            except Exception as error:  # Belongs to the next batch.
                self._ahead.append(error)
        assert self._pass is not None
        self._loader._progress.hand_out(self._pass.account)
        return batch

    next = Reading.__next__

    def __len__(self) -> int:
        return len(self._loader)

    def _begin(self) -> Stream | None:
        loader = self._loader
        begun, loader._begun = loader._begun, None
        self._pass = begun = begun or begin(loader)
        self._left = begun.left
        loader._progress.enter(begun.account)
        return begun.stream

    def _fetch(self) -> Any:
        if not self._over:
            self._loader._plan.consumed_here()
        return super()._fetch()

    def _made(self, batch: Any) -> Any:
        *arrays, skeleton = batch
        del batch
        moved = self._loader._move(skeleton.built(arrays, is_np_array()))
        assert self._pass is not None
        self._pass.account.fetched += 1
        return moved

    def _finish(self) -> None:
        assert self._pass is not None
        self._pass.account.count = self._pass.account.fetched
        self.close()
        loader = self._loader
        if loader.auto_reload and loader._begun is None and not self._engine.closed:
            loader.refresh()

    def close(self) -> None:
        """Let go of what is under way; what was moved ahead can still be had."""
        if self._over:
            return
        self._loader._plan.no_longer_consumed_here()
        super().close()
        if self._pass is None:
            return
        self._engine.rest()
        take_back(_LEFT_BEHIND)
        loader = self._loader
        if loader._begun is None:
            # Here and not before the next pass, so that what somebody else tells them counts.
            tell_epoch(loader._batch_sampler, loader._progress.next[0])
