"""Writes what was copied of a training, while the training goes on.

One thread at a time, which ends when its file is whole. ``write`` and ``wait`` are for the thread
that trains; ``write`` doesn't block, and is refused while a file is being written.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from adapters.resuming.folder import Folder

log = logging.getLogger("adapters")


class Background:
    """Saves to a folder, in a thread.

    Args:
        folder: Where to.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether a file is being written."""
        return self._thread is not None and self._thread.is_alive()

    def write(self, name: str, value: Any) -> None:
        """Begin to save; what can't be written is a WARNING, and the training goes on.

        Args:
            name: See ``Folder.save``.
            value: Belongs to the thread from now on.
        """
        self.wait()
        self._thread = threading.Thread(
            target=self._save, args=(name, value), name="adapters-resume"
        )
        self._thread.start()

    def wait(self) -> None:
        """Until what was begun is whole."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _save(self, name: str, value: Any) -> None:
        try:
            self._folder.save(name, value)
        except Exception as error:
            log.warning(
                "the training could not be saved to %s (%s: %s); it goes on, and a crash would "
                "lose what came since the last file there",
                self._folder.path,
                type(error).__name__,
                error,
            )
