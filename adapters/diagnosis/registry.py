"""Registry of the known frameworks; no other module of ``adapters.diagnosis`` names one.

FRONT_ENDS: framework -> its front end, whose module is imported on demand
DEVICES:    framework with asynchronous functions -> function that waits for its devices

A line in ``FRONT_ENDS`` registers a front end; see ``front_end.FrontEnd``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Registered(NamedTuple):
    """A front end's module, and its texts for messages."""

    module: str
    """The module with ``FRONT_END``, in the package of the front end's loaders."""
    made_by: str
    """The class or function that makes its loaders, and the framework."""
    own: str
    """Name of its loaders."""
    others: str = ""
    """The framework's own loaders that it can replace, if messages should name them."""
    step: str = ""
    """Accepted values of ``step`` other than a function."""
    copies: str = ""
    """The argument that makes its loaders copy batches to the device ahead of time."""


# Keys are packages of frameworks.
FRONT_ENDS: dict[str, Registered] = {
    "keras": Registered(
        "adapters.keras.diagnosed",
        "SafeSequence (Keras)",
        "a SafeSequence",
        others="a PyDataset",
        step="a compiled Keras model",
    ),
    "mxnet": Registered(
        "adapters.gluon.diagnosed",
        "gluon_loader (Gluon)",
        "what gluon_loader returns",
        copies="gluon_loader: ctx=",
    ),
}


def texts_of(name: str) -> list[str]:
    """The non-empty texts of all front ends under a field name of ``Registered``."""
    return [text for each in FRONT_ENDS.values() if (text := getattr(each, name))]


def _wait_for_torch(torch: Any) -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _wait_for_mxnet(mxnet: Any) -> None:
    if hasattr(mxnet, "nd"):  # Otherwise its import is still in progress.
        mxnet.nd.waitall()


# Keys are packages of frameworks; the functions are called with the package.
DEVICES: dict[str, Callable[[Any], None]] = {"torch": _wait_for_torch, "mxnet": _wait_for_mxnet}
