"""A thread that writes checkpoints while the training continues.

At most one thread runs, and it ends when its file is complete. The training thread calls ``write``
and ``wait``; both block while a file is being written.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from adapters.resuming.checkpoint_dir import CheckpointDir

log = logging.getLogger("adapters")


class Writer:
    """Saves checkpoints to a folder in a thread.

    Args:
        folder: The folder of the training.
    """

    def __init__(self, folder: CheckpointDir) -> None:
        self._folder = folder
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """True while a file is being written."""
        return self._thread is not None and self._thread.is_alive()

    def write(self, name: str, value: Any) -> None:
        """Start to save a value. Errors are logged as warnings, and the training continues.

        Args:
            name: See ``CheckpointDir.save``.
            value: The caller must not change it afterwards.
        """
        self.wait()
        self._thread = threading.Thread(
            target=self._save, args=(name, value), name="adapters-resume"
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until the file is complete."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _save(self, name: str, value: Any) -> None:
        try:
            self._folder.save(name, value)
        except Exception as error:
            log.warning(
                "the training could not be saved to %s (%s: %s); it continues, and a crash would "
                "lose what came since the last file there",
                self._folder.path,
                type(error).__name__,
                error,
            )
