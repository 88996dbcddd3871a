"""Keras front end: ``SafeSequence`` and the callbacks ``Resume``, ``WaitReport`` and ``Watch``.

Only this package imports keras. It uses TensorFlow, JAX and PyTorch only through Keras.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import keras as _keras  # noqa: F401
except ImportError as error:
    raise ImportError(
        "SafeSequence needs Keras 3: pip install 'loader-adapters[keras]' (Keras with TensorFlow), "
        "or pip install keras beside the backend of your choice"
    ) from error

from adapters.keras.patches import install
from adapters.keras.sequence import SafeSequence
from adapters.lazily import bound

if TYPE_CHECKING:
    from adapters.keras.resume import Resume
    from adapters.keras.waits import WaitReport
    from adapters.keras.watch import Watch
else:
    __getattr__ = bound(
        __name__,
        {
            "Resume": "adapters.keras.resume",
            "WaitReport": "adapters.keras.waits",
            "Watch": "adapters.keras.watch",
        },
    )

__all__ = ["Resume", "SafeSequence", "WaitReport", "Watch"]

install()
