"""What was asked for about workers, as users and as Keras see it."""

from __future__ import annotations

from typing import Any

import keras

from adapters.engine import Settings
from adapters.keras.arguments import fixed
from adapters.keras.internals import called_by_keras


class Asked(keras.utils.PyDataset):  # type: ignore[misc]
    """A ``PyDataset`` whose three options say what was asked for, and are fixed.

    Keras's own adapter is told that there are no workers: its enqueuer must not come on top of
    ours.
    """

    _settings: Settings

    @property
    def workers(self) -> Any:
        """What was asked for, ``"auto"``, a number or a Dask client; ``explain`` says more."""
        return 0 if called_by_keras() else self._settings.cluster or self._settings.workers

    @workers.setter
    def workers(self, value: Any) -> None:
        raise fixed("workers", value)

    @property
    def use_multiprocessing(self) -> bool:
        """What was asked for; with ``workers="auto"``, False leaves the choice open."""
        return not called_by_keras() and self._settings.use_multiprocessing

    @use_multiprocessing.setter
    def use_multiprocessing(self, value: Any) -> None:
        raise fixed("use_multiprocessing", value)

    @property
    def max_queue_size(self) -> int:
        """Batches that may be ready ahead of the trainer."""
        return self._settings.max_queue_size

    @max_queue_size.setter
    def max_queue_size(self, value: Any) -> None:
        raise fixed("max_queue_size", value)
