"""``for batch in seq``: iteration over one epoch in the user's own loop."""

from __future__ import annotations

from typing import Any

from adapters.batch.key import WHOLE
from adapters.engine import Engine, Reading, Stream
from adapters.keras.calls import is_read_by_a_call
from adapters.keras.progress import Account, Progress


class Iteration(Reading):
    """Iterator returned by ``iter(seq)``.

    Args:
        sequence: The sequence. It is kept alive, and with it the workers.
        engine: Engine of the sequence.
        progress: Position of the sequence.
    """

    def __init__(self, sequence: Any, engine: Engine, progress: Progress) -> None:
        super().__init__(engine)
        self._sequence = sequence
        self._progress = progress
        self._account: Account | None = None

    def _next(self) -> Any:
        batch = self._fetch()
        assert self._account is not None
        self._progress.hand_out(self._account)
        return batch

    def _begin(self) -> Stream:
        aside = is_read_by_a_call(self._progress)
        start = (self._progress.start[0], 0) if aside else None
        self._account = account = self._progress.begin(start, aside)
        self._left = account.left
        if not aside:
            self._engine.ahead_elsewhere = 0  # TensorFlow's thread may have read before.
        continuation = WHOLE if aside else self._progress.continuation
        return self._engine.stream(account.epoch, account.step, False, continuation)

    def close(self) -> None:
        """Drop the batches in flight, and advance the epoch if the pass has reached its end."""
        if not self._over and self._account is not None:
            self._progress.advance_past(self._account)
        super().close()
