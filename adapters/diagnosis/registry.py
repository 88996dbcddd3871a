"""The frameworks that are known, by name: the only file of this room that names one.

FACES:   a face towards a framework -> its module, which is imported when something of it comes up
DEVICES: a framework whose functions return early -> what waits until its devices are done

A face is registered with one line of ``FACES``; its module has a ``FACE``, see ``faces.Face``. What
is told of faces that aren't there, or not yet, is in the line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Registered:
    """A face, before anything of it is imported.

    Args:
        module: Whose ``FACE`` it is, in the package that its loaders come from.
        made_by: What makes its loaders, and for which framework.
        own: One of its loaders.
        others: What of the framework's own it takes the place of, where that must be said.
        step: What trains, beside a function.
        copies: The argument by which its loaders copy batches to the device ahead of time.
    """

    module: str
    made_by: str
    own: str
    others: str = ""
    step: str = ""
    copies: str = ""


# By the framework's package.
FACES: dict[str, Registered] = {
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


def told(name: str) -> list[str]:
    """What the registered faces say under that name, those that say something."""
    return [text for each in FACES.values() if (text := getattr(each, name))]


def _wait_for_torch(torch: Any) -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _wait_for_mxnet(mxnet: Any) -> None:
    if hasattr(mxnet, "nd"):  # Else, it is being imported.
        mxnet.nd.waitall()


# By the framework's package, which is what they are given.
DEVICES: dict[str, Callable[[Any], None]] = {"torch": _wait_for_torch, "mxnet": _wait_for_mxnet}
