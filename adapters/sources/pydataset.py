"""``PyDatasetWithoutKeras``: base of a user's ``PyDataset`` in workers that don't import Keras.

Importing Keras takes seconds and hundreds of megabytes in each worker. There, a class that a script
derives from ``keras.utils.PyDataset`` needs only the attributes of that class.
"""

from __future__ import annotations

from typing import Any


class PyDatasetWithoutKeras:
    """Attributes and hooks of ``keras.utils.PyDataset``, with the same instance state.

    Args:
        workers: As in Keras.
        use_multiprocessing: As in Keras.
        max_queue_size: As in Keras.
    """

    _workers, _use_multiprocessing, _max_queue_size = 1, False, 10  # If __init__ isn't called.

    def __init__(
        self, workers: int = 1, use_multiprocessing: bool = False, max_queue_size: int = 10
    ) -> None:
        self._workers = workers
        self._use_multiprocessing = use_multiprocessing
        self._max_queue_size = max_queue_size

    @property
    def workers(self) -> int:
        """Value that the user set."""
        return int(self._workers)

    @workers.setter
    def workers(self, value: int) -> None:
        self._workers = value

    @property
    def use_multiprocessing(self) -> bool:
        """Value that the user set."""
        return bool(self._use_multiprocessing)

    @use_multiprocessing.setter
    def use_multiprocessing(self, value: bool) -> None:
        self._use_multiprocessing = value

    @property
    def max_queue_size(self) -> int:
        """Value that the user set."""
        return int(self._max_queue_size)

    @max_queue_size.setter
    def max_queue_size(self, value: int) -> None:
        self._max_queue_size = value

    @property
    def num_batches(self) -> int | None:
        """Length of the data set, or None."""
        return len(self) if hasattr(self, "__len__") else None

    def __getitem__(self, index: int) -> Any:
        """Raise an error: the user's class defines it."""
        raise NotImplementedError

    def on_epoch_begin(self) -> None:
        """Do nothing: epochs start in the trainer's process."""

    def on_epoch_end(self) -> None:
        """Do nothing: epochs end in the trainer's process."""
