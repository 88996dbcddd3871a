"""State of a training with Gluon: parameters of the net and states of the trainer.

Parameters are matched by order. Their names (without numbers, which differ between processes),
shapes and dtypes must equal the saved ones. A ``Trainer`` writes and reads its states only by file
name. It gets a file in memory, which needs no disk space and vanishes with the process.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.util import is_np_array

from adapters.resuming import check_fingerprint


def state_of(net: Any, trainer: Any) -> dict[str, Any]:
    """Copy everything that training changes.

    Raises:
        OSError: The trainer can't write its states.
        ValueError: The trainer's states are on other servers.
    """
    parameters = net.collect_params().values()
    return {
        "parameters": [each.list_data()[0].asnumpy().copy() for each in parameters],
        "trainer": _states_of(trainer),
        "made": _made(net, trainer),
    }


def check(state: dict[str, Any], net: Any, trainer: Any, folder: Any) -> None:
    """Check that net and trainer match the saved ones.

    Raises:
        ValueError: They differ.
    """
    here = len(net.collect_params().values())
    if here != len(state["parameters"]):
        raise ValueError(
            f"net must be made as it was when the training was saved, with "
            f"{len(state['parameters'])} parameters, got {here}: make the same net, or give Resume "
            "another folder"
        )
    check_fingerprint(state.get("made", {}), _made(net, trainer), folder)


def set_state(net: Any, trainer: Any, state: dict[str, Any]) -> None:
    """Restore the state of a net and its trainer.

    Raises:
        ValueError: The net differs from the saved one.
    """
    make = mx.np.array if is_np_array() else mx.nd.array
    pairs = zip(net.collect_params().values(), state["parameters"])
    try:
        # Names are those of this process. Parameters of unknown shape get their shape.
        net.collect_params().load_dict({each.name: make(a, dtype=a.dtype) for each, a in pairs})
    except AssertionError as error:
        raise ValueError(
            "net must be made as it was when the training was saved: make the same net, or "
            f"give Resume another folder ({error})"
        ) from error
    with _file() as path:
        path.write_bytes(state["trainer"])
        trainer.load_states(str(path))


def check_trainer(trainer: Any) -> None:
    """Check that a trainer's states are in this process, as far as is known before training.

    Raises:
        ValueError: The states are on the servers of a distributed store.
    """
    asked = getattr(trainer, "_kvstore_params", {})  # Set before the trainer has started.
    store, there = asked.get("kvstore"), asked.get("update_on_kvstore")
    name = str(store if isinstance(store, str) else getattr(store, "type", ""))
    if there is None:
        there = os.environ.get("MXNET_UPDATE_ON_KVSTORE", "1") != "0"
    if "dist" in name and (there or "async" in name):
        raise _elsewhere(f"kvstore={name!r}")


def _made(net: Any, trainer: Any) -> dict[str, Any]:
    """Fingerprint of a net and a trainer."""
    parameters = net.collect_params().values()
    return {
        "the parameters of net": [
            (_unnumbered(each.name), np.dtype(each.dtype).name) for each in parameters
        ],
        "the optimizer of trainer": type(trainer.optimizer).__name__,
    }


def _states_of(trainer: Any) -> bytes:
    with _file() as path:
        try:
            trainer.save_states(str(path))
        except AssertionError as error:
            raise _elsewhere(str(error)) from error
        return path.read_bytes()


def _elsewhere(found: str) -> ValueError:
    return ValueError(
        "trainer must keep its states in this process for Resume to save them, not on the servers "
        f"of a distributed kvstore, got {found}: give Trainer(..., update_on_kvstore=False) with a "
        'kvstore that is synchronous, such as "dist_sync"'
    )


def _unnumbered(name: str) -> str:
    """Return a parameter's name without the numbers that a process gives its blocks."""
    return re.sub(r"\d+(?=_|$)", "", name)


@contextlib.contextmanager
def _file() -> Iterator[Path]:
    """Yield the path of a file in memory, which is removed afterwards."""
    file = os.memfd_create("adapters-states")
    try:
        yield Path(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
