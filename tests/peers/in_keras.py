"""A pytest plugin that puts ``SafeSequence`` in the place of ``PyDataset`` in Keras's own tests.

While a test file is imported, two of the names that it finds in Keras are ours: a ``PyDataset``
whose subclasses give, when they are called, a ``SafeSequence`` over the instance, with the workers
that it asks for; and a ``PyDatasetAdapter`` that asks Keras for the adapter that ``fit`` would be
given. Keras itself is left as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any

import keras
import pytest
from keras.src import trainers
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import py_dataset_adapter

from adapters import SafeSequence
from tests.peers.outcomes import note_replacement

_STOCK = sys.modules[py_dataset_adapter.__name__]


class _Sequence(SafeSequence):
    """Has the attributes of the data set that it is made of, which tests look at."""

    dataset: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.dataset, name)


class _OfOurs(type(keras.utils.PyDataset)):  # type: ignore[misc]
    """Calling a class of this kind gives a ``SafeSequence`` over the instance."""

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        dataset = super().__call__(*arguments, **keywords)
        note_replacement()
        sequence = _Sequence(
            dataset,
            workers=dataset.workers,
            use_multiprocessing=dataset.use_multiprocessing,
            # Theirs takes 0 where nothing is queued.
            max_queue_size=max(1, dataset.max_queue_size),
            # Theirs asks a data set by several threads at once, and a test measures that.
            thread_safe=True,
        )
        sequence.dataset = dataset
        return sequence


class _PyDataset(keras.utils.PyDataset, metaclass=_OfOurs):  # type: ignore[misc]
    """What test files derive from."""


def _adapter(dataset: Any, shuffle: bool = False, class_weight: Any = None) -> Any:
    """What ``fit`` would read the data set through."""
    if not isinstance(dataset, SafeSequence):
        raise TypeError(f"the test should have been given a SafeSequence, and has {dataset!r}")
    adapter = data_adapters.get_data_adapter(
        dataset,
        # Ours asks fit for it where the data set has no end.
        steps_per_epoch=1000 if dataset.num_batches is None else None,
        shuffle=shuffle,
        class_weight=class_weight,
    )
    if type(adapter) is _STOCK.PyDatasetAdapter:
        raise TypeError("Keras reads the SafeSequence through its own adapter")
    adapter.kept = dataset  # As fit does, and theirs; ours leaves that to the caller.
    return adapter


class _Double(ModuleType):
    """A module with some names replaced."""

    def __init__(self, module: ModuleType, **replaced: Any) -> None:
        super().__init__(module.__name__)
        self._module = module
        vars(self).update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@contextmanager
def _ours_in_place() -> Iterator[None]:
    adapter = _Double(_STOCK, PyDataset=_PyDataset, PyDatasetAdapter=_adapter)
    package = _Double(data_adapters, py_dataset_adapter=adapter)
    with pytest.MonkeyPatch.context() as patch:
        # "from data_adapters import py_dataset_adapter" looks here,
        patch.setattr(data_adapters, "py_dataset_adapter", adapter)
        # "from trainers import data_adapters" here,
        patch.setattr(trainers, "data_adapters", package)
        # and "from py_dataset_adapter import PyDataset" here.
        patch.setitem(sys.modules, _STOCK.__name__, adapter)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Import test files with ours in the place of theirs."""
    with _ours_in_place() if isinstance(collector, pytest.Module) else nullcontext():
        return (yield)
