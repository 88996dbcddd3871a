"""Transfer of batches to a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import mxnet as mx

from adapters.gluon.ndarrays import map_arrays, moved


@dataclass(frozen=True)
class Mover:
    """Moves batches to a device or into pinned memory.

    MXNet copies to a device asynchronously. A call returns before the copy has ended, and using the
    arrays waits for it.

    Args:
        ctx: The device, or None.
        pinned: Context of the pinned memory to copy to first, or None.
    """

    ctx: Any
    pinned: Any

    @property
    def ahead(self) -> bool:
        """True if a batch should be transferred while the previous one is used."""
        return self.ctx is not None and self.ctx != mx.cpu(0)

    def __call__(self, batch: Any) -> Any:
        """Move a batch."""
        if self.pinned is not None:
            # Tuples become lists here, as in MXNet.
            batch = map_arrays(lambda array: moved(array, self.pinned), batch, lists=True)
        if self.ctx is not None:
            batch = map_arrays(lambda array: moved(array, self.ctx), batch, lists=False)
        return batch


def mover(ctx: Any, pin_memory: bool | Literal["auto"], pin_device_id: int) -> Mover:
    """Return the ``Mover`` for a loader's arguments."""
    if pin_memory == "auto":
        pin_memory = ctx is not None and ctx.device_type == "gpu"
    return Mover(ctx, mx.cpu_pinned(pin_device_id) if pin_memory else None)
