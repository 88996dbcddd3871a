"""``for batch in seq``: one epoch, read by the program itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adapters.engine import Stream
    from adapters.keras.progress import Pass
    from adapters.keras.sequence import SafeSequence


class Epoch:
    """``iter(seq)``: keeps the sequence, and with it the workers, alive."""

    def __init__(self, sequence: SafeSequence) -> None:
        self._sequence = sequence
        self._progress = sequence._progress
        self._engine = sequence._engine
        self._pass: Pass | None = None
        self._stream: Stream | None = None

    def __iter__(self) -> Epoch:
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
