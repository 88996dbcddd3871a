"""``Watch``: a callback that finds the first batch with a NaN, infinite or exceptional loss."""

from __future__ import annotations

import collections
import logging
import math
import os
import shlex
import statistics
import sys
from dataclasses import dataclass
from typing import Any

import keras

from adapters.arguments import check_above
from adapters.keras.internals import sync_state
from adapters.keras.patches import Call, FitCallback
from adapters.keras.progress import position_after
from adapters.keras.resume import Resume
from adapters.remote.urls import local_path

log = logging.getLogger("adapters")

# Number of latest losses to compare with, and the least number needed.
_LATEST, _LEAST = 100, 20
# Tolerance for a mean that a compiled step has computed.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Noticed:
    """Batch with an exceptional loss.

    Args:
        kind: "not a number" or "spike".
        epoch: Epoch of the batch.
        batch: Number of the batch, for ``seq.replay(epoch, batch)``.
        loss: Loss of the batch.
        usual: Median of the losses before; None if there were too few.
        state: State for ``replay`` if the epoch was resumed with other shards or batches, or None.
    """

    kind: str
    epoch: int
    batch: int
    loss: float
    usual: float | None
    state: dict[str, int] | None = None


class Watch(FitCallback):
    """Reports the first batch of a ``fit`` whose loss is NaN or infinite, and the first spike.

    The report is a WARNING of the logger ``adapters``. It says how to see the batch again
    (``adapters replay``), and is appended to a file if ``path`` is given.

    Keras passes callbacks the mean of an epoch's losses so far. The loss of each batch is computed
    from these means, as if all batches were of one size; a custom ``train_step`` may return the
    losses themselves. Like a progress bar, the callback waits for the result of each batch.

    Args:
        path: Path of the file; its folder is created. None for the log alone. Later write errors
            are logged as a WARNING, and the training continues.
        spike: Least ratio of a spike to the median of the last 100 losses.

    Raises:
        OSError: In ``fit``: the file can't be written.
        TypeError: ``spike`` is no number, ``path`` no path, or ``fit`` trains on no
            ``SafeSequence``.
        ValueError: ``spike`` isn't above 1, or ``path`` is a URL.

    Attributes:
        noticed: Batches that were reported, over all calls of ``fit``.

    Example:
        >>> from adapters.keras import Watch
        >>> Watch(spike=20).noticed
        []
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, spike: float = 10.0) -> None:
        super().__init__()
        check_above("spike", spike, 1)
        self._path = None if path is None else local_path(path, "path")
        self._spike = float(spike)
        self.noticed: list[Noticed] = []
        self._fit: Any = None
        """Running ``Call``; None outside of ``fit``."""
        self._losses: collections.deque[float] = collections.deque(maxlen=_LATEST)
        self._mean, self._batches, self._next = 0.0, 0, 0
        self._averaged: bool | None = None
        """True if Keras passes a mean; None while mean and loss can't be told apart."""
        self._noticed_now: set[str] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with spike={self._spike}, path={self._path}>"

    def fit_begins(self, fit: Call) -> None:
        """Start from scratch."""
        if fit.sequence is None:
            raise TypeError("fit must train on a SafeSequence for Watch to name its batches")
        if self._path is not None:
            _try_to_write(self._path)
        self._fit = fit
        self._losses.clear()
        self._noticed_now.clear()

    def fit_ends(self, fit: Call) -> None:
        """Release the training data."""
        self._fit = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Reset the mean."""
        self._mean, self._batches, self._averaged = 0.0, 0, None
        self._next = 0 if self._fit is None else self._running_number()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Compute the batch's loss, and compare it with the usual ones."""
        if self._fit is None or not logs or "loss" not in logs:
            return
        # The last execution of an epoch may have fewer steps.
        end = self._running_number()
        numbers = range(max(self._next, end - getattr(self.model, "steps_per_execution", 1)), end)
        mean, before, earlier, count = float(logs["loss"]), self._mean, self._batches, len(numbers)
        if not earlier and any(isinstance(each, Resume) for each in self._fit.fit_callbacks):
            earlier = max(0, batch + 1 - count)
            before = math.nan if earlier else before  # The mean includes batches from before.
        self._mean, self._batches, self._next = mean, earlier + count, end
        if not math.isfinite(mean):
            self._notice("not a number", mean, numbers)
        elif math.isfinite(before):
            if self._averaged is None and earlier and mean not in (0, before):
                self._averaged = self._is_mean(mean)
            loss = mean
            if self._averaged is not False:
                loss += (mean - before) * earlier / max(1, count)
            usual = self._usual() or 0.0  # Other medians give no scale.
            if usual > 0 and loss > self._spike * usual:
                self._notice("spike", loss, numbers)
            self._losses.append(loss)

    def _usual(self) -> float | None:
        """Median of the latest losses; None if there are too few."""
        return statistics.median(self._losses) if len(self._losses) >= _LEAST else None

    def _running_number(self) -> int:
        """Number of the batch to train on next, counted over all epochs."""
        sequence = self._fit.sequence
        epoch, step = sequence._progress.position()
        return int(epoch * (sequence._plan.num_batches or 0) + step)  # Within an endless epoch.

    def _is_mean(self, value: float) -> bool:
        """True if a mean among the model's metrics has this value."""
        sync_state(self.model)
        means = (each for each in self.model.metrics if isinstance(each, keras.metrics.Mean))
        found = (float(keras.ops.convert_to_numpy(mean.result())) for mean in means)
        return any(math.isclose(value, mean, rel_tol=_ROUNDING) for mean in found)

    def _notice(self, kind: str, loss: float, numbers: range) -> None:
        if kind in self._noticed_now:
            return
        self._noticed_now.add(kind)
        fit, sequence = self._fit, self._fit.sequence
        plan, resumed = sequence._plan, sequence._progress.resumed
        first_epoch = sequence._progress.position()[0] if plan.num_batches is None else 0
        shuffled = fit.shuffle and not sequence._endless and not plan.order.shuffle
        for number in numbers:
            epoch, step = position_after(first_epoch, 0, number, plan.num_batches)
            key = resumed.key(epoch, step, plan.shuffled if shuffled else None)
            consumed = plan.order.consumed(resumed.step, resumed.origin) if key.origin else None
            state = None if consumed is None else {"epoch": epoch, "samples": consumed}
            found = Noticed(kind, epoch, key.index, loss, self._usual(), state)
            self.noticed.append(found)
            line = _line(found)
            log.warning("%s", line)
            if self._path is not None:
                try:
                    with open(self._path, "a") as file:
                        file.write(line + "\n")
                except OSError as error:  # Don't lose a long training.
                    log.warning("Watch: the line can't be written to its path: %s", error)


def _try_to_write(path: str | os.PathLike[str]) -> None:
    """Create the file's folder, and check that the file can be written."""
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        open(path, "a").close()
    except OSError as error:
        raise OSError(
            f"path must be that of a file that Watch can write, got {os.fspath(path)!r}: {error}"
        ) from error


def _line(found: Noticed) -> str:
    usual = "" if found.usual is None else f" (usual: {found.usual:.4g})"
    script = shlex.quote(sys.argv[0] or "train.py")
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.origin == sys.argv[0]:  # It was started by ``python -m``.
        script = spec.name
    return (
        f"loss {found.loss:.4g}{usual}, {found.kind}, at batch {found.batch} of epoch "
        f"{found.epoch}: adapters replay {script} --epoch {found.epoch} --batch {found.batch}"
        + ("" if found.state is None else f" --samples {found.state['samples']}")
        + (f" -- {shlex.join(sys.argv[1:])}" if sys.argv[1:] else "")
    )
