"""The compiled gatherer of records' fields, where it was built.

``ADAPTERS_KERNEL=0`` in the environment does without it, with ``ADAPTERS_KERNEL=required`` it must
be there.
"""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType

_NAME = "adapters.records._rows"


@functools.cache
def load() -> ModuleType | None:
    """The module with ``gather``; None where it wasn't built, can't be loaded, or isn't wanted.

    Raises:
        ImportError: It can't be had, and ``ADAPTERS_KERNEL`` is ``required``.
    """
    wanted = os.environ.get("ADAPTERS_KERNEL")
    if wanted == "0":
        return None
    try:
        return importlib.import_module(_NAME)
    except ImportError:
        if wanted == "required":
            raise
        return None
