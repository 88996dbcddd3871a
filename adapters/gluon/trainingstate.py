"""The state of a training with Gluon: parameters of the net, states of the trainer.

Parameters are told by their order, and their names without the numbers that differ between
processes, their shapes and their dtypes must be those that were saved. A ``Trainer`` writes and
reads its states by the name of a file alone: it is given one that lies in memory, which no full
disk concerns and no killed process leaves behind.
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
    """A copy of all that training changes.

    Raises:
        OSError: The trainer couldn't write its states.
        ValueError: Its states are elsewhere.
    """
    parameters = net.collect_params().values()
    return {
        "parameters": [each.list_data()[0].asnumpy().copy() for each in parameters],
        "trainer": _states_of(trainer),
        "made": _made(net, trainer),
    }


def check(state: dict[str, Any], net: Any, trainer: Any, folder: Any) -> None:
    """Check that these are what was saved.

    Raises:
        ValueError: They aren't.
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
    """Have a net and its trainer go on from there.

    Raises:
        ValueError: The net isn't made like the one whose state that is.
    """
    make = mx.np.array if is_np_array() else mx.nd.array
    pairs = zip(net.collect_params().values(), state["parameters"])
    try:
        # By what they are called in this process; those whose shapes aren't known get them.
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
    """Check that the states of a trainer are in this process, as far as it tells beforehand.

    Raises:
        ValueError: They are on the servers of a distributed store.
    """
    asked = getattr(trainer, "_kvstore_params", {})  # Of a trainer that hasn't begun.
    store, there = asked.get("kvstore"), asked.get("update_on_kvstore")
    name = str(store if isinstance(store, str) else getattr(store, "type", ""))
    if there is None:
        there = os.environ.get("MXNET_UPDATE_ON_KVSTORE", "1") != "0"
    if "dist" in name and (there or "async" in name):
        raise _elsewhere(f"kvstore={name!r}")


def _made(net: Any, trainer: Any) -> dict[str, Any]:
    """What tells a net and a trainer from others."""
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
    """A parameter's name without the numbers that a process counts its blocks by."""
    return re.sub(r"\d+(?=_|$)", "", name)


@contextlib.contextmanager
def _file() -> Iterator[Path]:
    """The name of a file that is gone afterwards."""
    file = os.memfd_create("adapters-states")
    try:
        yield Path(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
