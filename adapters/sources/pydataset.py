"""What a ``PyDataset`` of the user's is in a worker process, where Keras isn't imported.

Importing Keras takes seconds and hundreds of megabytes in each worker. A class that a script has
derived from ``keras.utils.PyDataset`` needs of it, over there, no more than its attributes.
"""

from __future__ import annotations

from typing import Any


class PyDatasetWithoutKeras:
    """The attributes and hooks of ``keras.utils.PyDataset``; an instance's state is that class's.

    Args:
        workers: As Keras has it.
        use_multiprocessing: As Keras has it.
        max_queue_size: As Keras has it.
    """

    _workers, _use_multiprocessing, _max_queue_size = 1, False, 10  # Where __init__ isn't called.

    def __init__(
        self, workers: int = 1, use_multiprocessing: bool = False, max_queue_size: int = 10
    ) -> None:
        self._workers = workers
        self._use_multiprocessing = use_multiprocessing
        self._max_queue_size = max_queue_size

    @property
    def workers(self) -> int:
        """As the user has said."""
        return int(self._workers)

    @workers.setter
    def workers(self, value: int) -> None:
        self._workers = value

    @property
    def use_multiprocessing(self) -> bool:
        """As the user has said."""
        return bool(self._use_multiprocessing)

    @use_multiprocessing.setter
    def use_multiprocessing(self, value: bool) -> None:
        self._use_multiprocessing = value

    @property
    def max_queue_size(self) -> int:
        """As the user has said."""
        return int(self._max_queue_size)

    @max_queue_size.setter
    def max_queue_size(self, value: int) -> None:
        self._max_queue_size = value

    @property
    def num_batches(self) -> int | None:
        """The length, where there is one."""
        return len(self) if hasattr(self, "__len__") else None

    def __getitem__(self, index: int) -> Any:
        """The user's class has its own."""
        raise NotImplementedError

    def on_epoch_begin(self) -> None:
        """Epochs begin in the trainer's process."""

    def on_epoch_end(self) -> None:
        """Epochs end in the trainer's process."""
