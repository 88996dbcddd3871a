"""Batches on their way to a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import mxnet as mx

from adapters.gluon.ndarrays import map_arrays, moved


@dataclass(frozen=True)
class Mover:
    """Moves a batch to where it is wanted.

    Copies to a device are asynchronous in MXNet: this returns before they have ended, and whoever
    uses the arrays waits for them.

    Args:
        ctx: The device, if any.
        pinned: The pinned memory to go through, if any.
    """

    ctx: Any
    pinned: Any

    @property
    def ahead(self) -> bool:
        """Whether a batch should be on its way while the one before it is used."""
        return self.ctx is not None and self.ctx != mx.cpu(0)

    def __call__(self, batch: Any) -> Any:
        """The batch, there."""
        if self.pinned is not None:
            # MXNet gives lists in the place of tuples here, and so do we.
            batch = map_arrays(lambda array: moved(array, self.pinned), batch, lists=True)
        if self.ctx is not None:
            batch = map_arrays(lambda array: moved(array, self.ctx), batch, lists=False)
        return batch


def mover(ctx: Any, pin_memory: bool | Literal["auto"], pin_device_id: int) -> Mover:
    """What these arguments mean."""
    if pin_memory == "auto":
        pin_memory = ctx is not None and ctx.device_type == "gpu"
    return Mover(ctx, mx.cpu_pinned(pin_device_id) if pin_memory else None)
