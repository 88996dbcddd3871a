"""Loaders of both front ends for one set of arguments, and their batches as NumPy arrays.

Worker processes may import this module, so it imports no framework before one is asked for.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

MXNET_RUNS = importlib.util.find_spec("mxnet") is not None and int(np.__version__.split(".")[0]) < 2
NEEDS_MXNET = pytest.mark.skipif(not MXNET_RUNS, reason="MXNet isn't installed, or NumPy is 2")

_WORKERS: dict[str, dict[str, dict[str, Any]]] = {
    "keras": {
        "inline": {"workers": 0},
        "auto": {"workers": "auto"},
        "2 threads": {"workers": 2},
        "8 threads": {"workers": 8},
        "2 processes": {"workers": 2, "use_multiprocessing": True},
    },
    "gluon": {
        "inline": {"num_workers": 0},
        "auto": {"num_workers": "auto"},
        "2 threads": {"num_workers": 2, "thread_pool": True},
        "8 threads": {"num_workers": 8, "thread_pool": True},
        "2 processes": {"num_workers": 2},
    },
}
ALL_WORKERS = tuple(_WORKERS["keras"])
THREADS = ("2 threads", "8 threads")


def loader_of(
    front_end: str,
    source: Any,
    batch_size: int | None,
    *,
    workers: str = "inline",
    transform: Any = None,
    batch_transform: Any = None,
    collate: Any = None,
    shuffle: bool = False,
    **more: Any,
) -> Any:
    """A loader of ``"keras"`` or ``"gluon"``, with each argument in the front end's own place."""
    arguments = {**_WORKERS[front_end][workers], **more}
    if batch_transform is not None:
        arguments["batch_transform"] = batch_transform
    if shuffle:
        arguments = {"shuffle": True, "seed": 0, **arguments}
    if front_end == "keras":
        from adapters import SafeSequence

        sizes = () if batch_size is None else (batch_size,)
        return SafeSequence(source, *sizes, transform=transform, collate=collate, **arguments)
    from adapters import gluon_loader

    if transform is not None:
        from mxnet.gluon.data import SimpleDataset

        source = (SimpleDataset(source) if isinstance(source, list) else source).transform(
            transform
        )
    return gluon_loader(source, batch_size, batchify_fn=collate, **arguments)


def undeclared(front_end: str, workers: str) -> dict[str, Any]:
    """Arguments that leave user code undeclared: Gluon's ``thread_pool=True`` declares it."""
    return {"thread_safe": False} if front_end == "gluon" and workers in THREADS else {}


def numpy_of(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {name: numpy_of(each) for name, each in batch.items()}
    if isinstance(batch, list | tuple):
        return [numpy_of(each) for each in batch]
    return batch.asnumpy() if hasattr(batch, "asnumpy") else np.asarray(batch)


def batches_of(loader: Any, epochs: int = 1) -> Iterator[Any]:
    for _ in range(epochs):
        for batch in loader:
            yield numpy_of(batch)


def log_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "adapters"]
