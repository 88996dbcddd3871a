"""A training that is killed with SIGKILL at some moment, or goes on to its end.

Arguments: the folder of Resume, a file for the losses, workers, and the seconds from the second
batch of the run to the signal, or "never".
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.keras.trainings import Losses, train

_BATCH_SECONDS = 0.02


class Slow(Losses):
    """Takes its time, so that there are moments to be killed at.

    Args:
        path: For the losses.
        seconds: From the second batch to the signal; None for never.
    """

    def __init__(self, path: Path, seconds: float | None) -> None:
        super().__init__(path=path)
        self.seconds = seconds

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        # What comes before the second one is to a large part compiling.
        if self.seconds is not None and self.counts["train"] == 1:
            kill = threading.Timer(self.seconds, os.kill, (os.getpid(), signal.SIGKILL))
            kill.daemon = True
            kill.start()
        self.counts["train"] += 1
        time.sleep(_BATCH_SECONDS)


if __name__ == "__main__":
    folder, losses, workers, seconds = sys.argv[1:]
    slow = Slow(Path(losses), None if seconds == "never" else float(seconds))
    train(Path(folder), slow, workers=int(workers))
