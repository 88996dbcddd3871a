"""Standing in front of loops over a DataLoader, while ``adapters doctor`` runs a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mxnet as mx
from mxnet.gluon.data import dataloader as _dataloader

from adapters.gluon.loader import Loader, gluon_loader
from adapters.gluon.samplers import sampler_twin

_DEFAULTS = (_dataloader.default_batchify_fn, _dataloader.default_mp_batchify_fn)


def intercept(examined: Callable[[Any, Callable[[], Iterator[Any]]], Iterator[Any]]) -> None:
    """Have every loop over a loader, MXNet's or ours, read from ``examined(loader, plain)``.

    Args:
        examined: Is given the loader, and what begins a pass over it as it is.
    """
    for kind in (mx.gluon.data.DataLoader, Loader):
        _intercept(kind, examined, kind.__iter__)


def _intercept(kind: Any, examined: Any, own: Callable[[Any], Iterator[Any]]) -> None:
    def begin(self: Any) -> Iterator[Any]:
        result: Iterator[Any] = examined(self, lambda: own(self))
        return result

    kind.__iter__ = begin


def same_loader(loader: Any) -> Loader:
    """``gluon_loader`` with the arguments that MXNet's DataLoader was given."""
    batchify = loader._batchify_fn
    return gluon_loader(
        loader._dataset,
        batch_sampler=sampler_twin(loader._batch_sampler),
        batchify_fn=None if batchify in _DEFAULTS else batchify,
        num_workers=loader._num_workers,
        thread_pool=loader._thread_pool if loader._num_workers else "auto",
    )
