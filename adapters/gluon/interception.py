"""Standing in front of loops over a DataLoader, while ``adapters doctor`` runs a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mxnet as mx
from mxnet.gluon.data import dataloader as _dataloader

from adapters.gluon.loader import DataLoader, gluon_loader
from adapters.gluon.samplers import sampler_twin

_DEFAULTS = (_dataloader.default_batchify_fn, _dataloader.default_mp_batchify_fn)


@contextmanager
def intercepted(
    examined: Callable[[Any, Callable[[], Iterator[Any]]], Iterator[Any]],
) -> Iterator[None]:
    """Within, every loop over a loader, MXNet's or ours, reads from ``examined(loader, plain)``.

    Args:
        examined: Is given the loader, and what begins a pass over it as it is.
    """
    kinds: list[Any] = [mx.gluon.data.DataLoader, DataLoader]
    own = [kind.__iter__ for kind in kinds]
    for kind, plain in zip(kinds, own):
        kind.__iter__ = _before(plain, examined)
    try:
        yield
    finally:
        for kind, plain in zip(kinds, own):
            kind.__iter__ = plain


def _before(plain: Callable[[Any], Iterator[Any]], examined: Any) -> Callable[[Any], Iterator[Any]]:
    def begin(self: Any) -> Iterator[Any]:
        result: Iterator[Any] = examined(self, lambda: plain(self))
        return result

    return begin


def same_loader(loader: Any) -> DataLoader:
    """``gluon_loader`` with the arguments that MXNet's DataLoader was given."""
    batchify = loader._batchify_fn
    return gluon_loader(
        loader._dataset,
        batch_sampler=sampler_twin(loader._batch_sampler),
        batchify_fn=None if batchify in _DEFAULTS else batchify,
        num_workers=loader._num_workers,
        thread_pool=loader._thread_pool if loader._num_workers else "auto",
    )
