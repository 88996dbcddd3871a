"""Sequences that give memory of their own, in every way; worker processes import this module."""

from __future__ import annotations

import threading
from typing import Any

import keras
import numpy as np

WIDTH = 16


def content(number: int) -> Any:
    """float32 ``(4, WIDTH)``, what batch ``number`` holds."""
    return np.arange(4 * WIDTH, dtype=np.float32).reshape(4, WIDTH) + 1000 * number


class Giving(keras.utils.PyDataset):
    """Batches that come as ``way`` says."""

    def __init__(self, way: str, batches: int = 10, **options: Any) -> None:
        super().__init__(**options)
        self.way = way
        self.batches = batches
        self.calls = 0
        self.ring = np.zeros((3, 6, WIDTH), np.float32)
        self.pair = self.ring[0, :4], self.ring[1, :4]
        self.all = np.concatenate([content(number) for number in range(batches)])
        self.tensor: Any = None
        self.own = threading.local()
        self.thread_safe = way == "a buffer for each thread"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "own": None, "tensor": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, own=threading.local())

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        return getattr(self, "_" + self.way.replace(" ", "_").replace("-", "_"))(content(index))

    def _new_arrays(self, new: Any) -> Any:
        return new, new[:, :1]

    def _one_buffer(self, new: Any) -> Any:
        self.ring[0, :4] = new
        return self.ring[0, :4], new[:, :1]

    def _a_ring(self, new: Any) -> Any:
        buffer = self.ring[self.calls % 3, :4]
        buffer[...] = new
        return buffer, buffer[:, :1]

    def _a_kept_tuple(self, new: Any) -> Any:
        for member in self.pair:
            member[...] = new
        return self.pair

    def _read_only(self, new: Any) -> Any:
        self.ring[0, :4] = new
        view = self.ring[0, :4]
        view.flags.writeable = False
        return view, view

    def _aligned_memory(self, new: Any) -> Any:
        if not hasattr(self, "aligned"):
            block = np.zeros(4 * WIDTH + 16, np.float32)
            start = -block.ctypes.data % 64 // 4
            self.aligned = block[start : start + 4 * WIDTH].reshape(4, WIDTH)
        self.aligned[...] = new
        return self.aligned, new[:, :1]

    def _stored_rows(self, new: Any) -> Any:
        # Of an array that is turned round before the next one is given.
        row = int(new[0, 0]) // 1000 * 4
        if self.calls % 2 == 0:
            self.all[:] = self.all[::-1].copy()
        else:
            self.all = np.concatenate([content(number) for number in range(self.batches)])
        at = slice(row, row + 4) if self.calls % 2 else slice(None)
        rows = self.all[at] if self.calls % 2 else self.all[::-1][row : row + 4]
        return rows, rows[:, :1]

    def _a_buffer_for_each_thread(self, new: Any) -> Any:
        if not hasattr(self.own, "buffer"):
            self.own.buffer = np.zeros_like(new)
        self.own.buffer[...] = new
        return self.own.buffer, new[:, :1]

    def _a_tensor_of_the_backend(self, new: Any) -> Any:
        tensor = keras.ops.convert_to_tensor(new)
        return tensor, tensor

    def _a_variable(self, new: Any) -> Any:
        if self.tensor is None:
            self.tensor = keras.Variable(np.zeros_like(new), trainable=False)
        self.tensor.assign(new)
        return self.tensor.value, self.tensor.value

    def _a_tensor_of_pytorch(self, new: Any) -> Any:
        import torch

        if self.tensor is None:
            self.tensor = torch.zeros(6, WIDTH)
        self.tensor[:4] = torch.from_numpy(new)
        return self.tensor[:4], self.tensor[:4, :1]


WAYS = (
    "new arrays",
    "one buffer",
    "a ring",
    "a kept tuple",
    "read-only",
    "aligned memory",
    "stored rows",
    "a buffer for each thread",
    "a tensor of the backend",
    "a variable",
    "a tensor of pytorch",
)


class Doubled:
    """A ``batch_transform`` that fills a buffer of its own."""

    def __init__(self) -> None:
        self.buffer: Any = None

    def __call__(self, batch: Any) -> Any:
        if self.buffer is None:
            self.buffer = np.zeros_like(batch[0])
        np.multiply(batch[0], 2, out=self.buffer)
        return self.buffer, batch[1]
