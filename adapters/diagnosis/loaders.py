"""What is examined: a loader of this package, one in the place of a framework's own, or any."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from adapters.structure import flatten


def as_own(loader: Any) -> tuple[Any, str]:
    """The loader, or one of ours for the same, and what that replaces; None for others.

    Raises:
        TypeError: It can't be iterated over.
    """
    if hasattr(loader, "_twin") and hasattr(loader, "_ablations"):
        return loader, ""
    bases = {f"{base.__module__}.{base.__name__}" for base in type(loader).__mro__}
    if any(base.startswith("keras.") and base.endswith(".PyDataset") for base in bases):
        from adapters.keras import SafeSequence

        workers = loader.workers if loader.workers > 1 else 0
        processes = loader.use_multiprocessing
        sequence = SafeSequence(loader, workers=workers, use_multiprocessing=processes)
        return sequence, "SafeSequence in the place of the PyDataset"
    if "mxnet.gluon.data.dataloader.DataLoader" in bases:
        from adapters.gluon.interception import same_loader

        return same_loader(loader), "gluon_loader in the place of DataLoader, same arguments"
    if not (hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")):
        raise TypeError(
            "loader must be a SafeSequence, what gluon_loader returns, a PyDataset, or something "
            f"else that gives batches when it is iterated over, got {type(loader).__name__}"
        )
    return None, ""


def samples_in(batch: Any) -> int:
    """How many samples a batch has, by the first axis of its first array."""
    for leaf in flatten(batch)[0]:
        shape = getattr(leaf, "shape", None)
        if shape:
            return int(shape[0])
    return 1


def settled_of(loader: Any) -> Callable[[], bool]:
    """Whether a loader, or an engine, has the workers that it will have; True for foreign ones."""
    engine = getattr(loader, "_engine", loader)
    return lambda: getattr(engine, "settled", True)


def go_on(loader: Any) -> None:
    """Have the next pass begin where the latest one was left, where a loader can do that.

    The same first batches again would come from the page cache.
    """
    if hasattr(loader, "load_state_dict"):
        with contextlib.suppress(ValueError):  # Its passes differ: see a Gluon loader's state_dict.
            loader.load_state_dict(loader.state_dict())
