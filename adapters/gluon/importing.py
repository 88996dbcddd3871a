"""Importing MXNet, whose latest release asks NumPy for names that NumPy has given up."""

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

# The names that MXNet 1.9.1 reads from NumPy while it is imported, and what they meant.
_LENT = {"bool": bool}
_NEEDLESS = ("scipy", "sklearn")
# Set in worker processes, whose engine says on stderr that it isn't the usual one.
QUIET = "ADAPTERS_QUIET_MXNET"
_lock = threading.Lock()


def import_mxnet() -> Any:
    """Import MXNet, also beside a NumPy that is newer than it.

    NumPy is lent the names that MXNet asks for while it is imported, and is then as it was before.

    Returns:
        The module ``mxnet``.

    Raises:
        ImportError: MXNet isn't installed, or NumPy is too new for it; says what to install.

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
            # About what MXNet does there; nobody can change it any more.
            warnings.simplefilter("ignore")
            try:
                mxnet = importlib.import_module("mxnet")
                if quiet:
                    mxnet.nd.waitall()  # Makes the engine, which says so.
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
    """For worker processes: nothing on stderr, not even from C++, and no module that no one needs.

    MXNet imports these where they are there, for model quantisation and its old ``FeedForward``:
    0.5 of 1.5 s.
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
