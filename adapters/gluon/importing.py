"""Import of MXNet, whose latest release uses a name that NumPy has removed."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

# Environment variable of worker processes, whose engine otherwise reports its type on stderr.
QUIET = "ADAPTERS_QUIET_MXNET"
_lock = threading.Lock()


def import_mxnet() -> Any:
    """Import MXNet, also with a newer NumPy 1.

    The names that NumPy has removed are defined during the import, and removed again afterwards.

    Returns:
        The module ``mxnet``.

    Raises:
        ImportError: MXNet isn't installed, or NumPy is too new. The message says what to install.

    Example:
        >>> from adapters.gluon import import_mxnet
        >>> mx = import_mxnet()
        >>> mx.__name__
        'mxnet'
    """
    with _lock:
        if "mxnet" in sys.modules:
            return importlib.import_module("mxnet")
        if int(np.__version__.split(".")[0]) >= 2:
            raise ImportError(
                f"MXNet needs NumPy 1, and NumPy {np.__version__} is installed: "
                "pip install 'loader-adapters[mxnet]' (or 'numpy<2') in an environment of its own"
            )
        lent = {} if "bool" in vars(np) else {"bool": bool}
        quiet = _quiet() if os.environ.get(QUIET) else contextlib.nullcontext()
        with warnings.catch_warnings(), quiet:
            # Warnings about MXNet's own code, which is no longer maintained.
            warnings.simplefilter("ignore")
            vars(np).update(lent)
            try:
                mxnet = importlib.import_module("mxnet")
                if os.environ.get(QUIET):
                    mxnet.nd.waitall()  # Creates the engine, which writes to stderr.
                return mxnet
            except ModuleNotFoundError as error:
                if error.name != "mxnet":
                    raise
                raise ImportError(
                    "gluon_loader needs MXNet: pip install 'loader-adapters[mxnet]' (on Python "
                    "3.11 or older, which have wheels), or mxnet-cu112 for a GPU of that time"
                ) from error
            finally:
                for name in lent:
                    delattr(np, name)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence stderr, also for C++, and hide modules that worker processes don't need.

    MXNet imports these modules if they are installed, for model quantisation and its old
    ``FeedForward``: 1.4 of 3.1 s of CPU time.
    """
    hidden = [name for name in ("scipy.stats", "sklearn") if name not in sys.modules]
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        os.dup2(kept, 2)
        os.close(kept)
