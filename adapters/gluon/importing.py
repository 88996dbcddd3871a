"""Import of MXNet, whose latest release uses names that NumPy has removed."""

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

# Removed names that MXNet 1.9.1 reads from NumPy during import, and their values.
_LENT = {"bool": bool}
_NEEDLESS = ("scipy", "sklearn")
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
        quiet = bool(os.environ.get(QUIET))
        with (
            _names_lent(),
            warnings.catch_warnings(),
            _lean() if quiet else contextlib.nullcontext(),
        ):
            # Warnings about MXNet's own code, which is no longer maintained.
            warnings.simplefilter("ignore")
            try:
                mxnet = importlib.import_module("mxnet")
                if quiet:
                    mxnet.nd.waitall()  # Creates the engine, which writes to stderr.
                return mxnet
            except ModuleNotFoundError as error:
                if error.name != "mxnet":
                    raise
                raise ImportError(
                    "gluon_loader needs MXNet: pip install 'loader-adapters[mxnet]' (on Python "
                    "3.11 or older, which have wheels), or mxnet-cu112 for a GPU of that time"
                ) from error


@contextlib.contextmanager
def _names_lent() -> Iterator[None]:
    missing = [name for name in _LENT if name not in vars(np)]
    for name in missing:
        setattr(np, name, _LENT[name])
    try:
        yield
    finally:
        for name in missing:
            delattr(np, name)


@contextlib.contextmanager
def _lean() -> Iterator[None]:
    """Silence stderr, also for C++, and hide modules that worker processes don't need.

    MXNet imports these modules if they are installed, for model quantisation and its old
    ``FeedForward``: 0.5 of 1.5 s.
    """
    hidden = [name for name in _NEEDLESS if name not in sys.modules]
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
