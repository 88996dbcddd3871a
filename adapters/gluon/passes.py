"""One pass over a loader: from a stream of the engine to batches as MXNet gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mxnet.util import is_np_array

from adapters.batch.order import DrawnOrder
from adapters.engine import Exhausted, Stream
from adapters.gluon.lending import take_back
from adapters.gluon.progress import Account
from adapters.gluon.randomness import fresh_entropy
from adapters.gluon.samplers import EpochBatchSampler, drawn_batches, length_of, tell_epoch

if TYPE_CHECKING:
    from adapters.gluon.loader import DataLoader

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
    def at_end(self) -> bool:
        """Whether the stream was read up to the last batch, if that is known."""
        return self.endless and self.account.fetched == self.account.count

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
    sampler, number = loader._batch_sampler, loader._progress.next[0]
    account = loader._progress.begin(length_of(sampler, number))
    if isinstance(sampler, EpochBatchSampler):
        sampler.set_epoch(number)
    if not isinstance(plan.order, DrawnOrder):
        stream = engine.stream(number, account.first, False) if account.count else None
        return Begun(stream, account, endless=True)
    batches = drawn_batches(sampler, number, account.first)
    entropy = None
    if loader._fresh:
        entropy, batches = fresh_entropy(batches, loader._generators)
    stream = engine.drawn_stream(number, batches, account.count, account.first, entropy)
    return Begun(stream, account)


class Pass:
    """``iter(loader)``: keeps the loader, and with it the workers, alive.

    Nothing happens before the first batch is asked for, as in MXNet.
    """

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._engine = loader._engine
        self._begun: Begun | None = None
        self._stream: Stream | None = None
        self._ended = False
        self._ahead: list[Any] = []

    def __iter__(self) -> Pass:
        return self

    def __next__(self) -> Any:
        if self._ended and not self._ahead:
            raise StopIteration
        begun = self._begun or self._begin()
        batch = self._ahead.pop() if self._ahead else self._fetch(begun)
        if isinstance(batch, BaseException):
            raise batch
        if self._loader._move.ahead and not self._ended and self._stream and self._stream.ready:
            try:
                self._ahead.append(self._fetch(begun))
            except StopIteration:
                pass
            except Exception as error:  # Belongs to the next batch.
                self._ahead.append(error)
        self._loader._progress.hand_out(begun.account)
        return batch

    next = __next__

    def __len__(self) -> int:
        return len(self._loader)

    def _begin(self) -> Begun:
        loader = self._loader
        begun, loader._begun = loader._begun, None
        try:
            self._begun = begun = begun or begin(loader)
        except BaseException:
            self._ended = True
            raise
        self._stream = begun.stream
        loader._progress.enter(begun.account)
        return begun

    def _fetch(self, begun: Begun) -> Any:
        stream = self._stream
        if stream is None or begun.at_end:
            self._finish(begun)
            raise StopIteration
        self._loader._plan.consumed_here()
        try:
            *arrays, skeleton = stream.next()
            batch = skeleton.built(arrays, is_np_array())
            batch = self._loader._move(batch)
        except Exhausted:
            problem = getattr(stream, "problem", None)
            if problem is None or isinstance(problem, StopIteration):
                self._finish(begun)
                raise StopIteration from None
            self._end(begun)
            raise problem from None
        except BaseException as error:
            self._end(begun)
            if isinstance(error, StopIteration):
                raise RuntimeError("the data set or a transform raised StopIteration") from error
            raise
        begun.account.fetched += 1
        return batch

    def _end(self, begun: Begun) -> None:
        self._ended = True
        self._loader._plan.no_longer_consumed_here()
        stream, self._stream = self._stream, None
        if stream is None:
            return
        if begun.at_end:
            self._engine.park(stream)
        else:
            stream.close()
        self._engine.rest()
        take_back(_LEFT_BEHIND)
        loader = self._loader
        if loader._begun is None:
            # Here and not before the next pass, so that what somebody else tells them counts.
            tell_epoch(loader._batch_sampler, loader._progress.next[0])

    def _finish(self, begun: Begun) -> None:
        """All batches were delivered."""
        begun.account.count = begun.account.fetched
        self._end(begun)
        loader = self._loader
        if loader.auto_reload and loader._begun is None and not self._engine.closed:
            loader.refresh()

    def __del__(self) -> None:
        if getattr(self, "_stream", None) is not None and self._begun is not None:
            self._end(self._begun)
