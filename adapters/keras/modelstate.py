"""The state of a model in training: variables of model, optimizers and metrics, and generators.

Variables are told by their order, as their names are numbered on in each process. On JAX they are
outside of the model during ``fit`` until somebody calls ``jax_state_sync``. What is given here is a
copy, as the next step overwrites what it trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from adapters.keras import internals
from adapters.seeding import process_generators, set_process_generators

_METRICS = "metric variables"
_Group = list[tuple[str, Any]]


def state_of(model: Any) -> dict[str, Any]:
    """A copy of all that training changes."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()
    variables = {
        name: [(label, np.array(_to_numpy(value))) for label, value in group]
        for name, group in _groups(model)
    }
    return {"variables": variables, "generators": _generators()}


def set_state(model: Any, state: dict[str, Any], metrics: bool) -> None:
    """Have a model train on from there.

    Args:
        model: Whose variables are all there.
        state: What ``state_of`` gave.
        metrics: Also those, as within an epoch.

    Raises:
        ValueError: It isn't made like the model whose state that is.
    """
    saved = state["variables"]
    groups = dict(_groups(model))
    for name, group in groups.items():
        there = saved.get(name, [])
        if len(there) != len(group):
            raise ValueError(_differs(f"{len(there)} {name}", f"{len(group)}"))
        for (label, variable), (_, array) in zip(group, there):
            if tuple(variable.shape) != array.shape:
                raise ValueError(_differs(f"{label} of shape {array.shape}", str(variable.shape)))
    if not metrics:
        del groups[_METRICS]
    for name, group in groups.items():
        for (_, variable), (_, array) in zip(group, saved[name]):
            _assign(variable, array)
    _set_generators(state["generators"])


def built(model: Any) -> bool:
    """Whether all variables are there that training changes."""
    metrics = internals.compiled_metrics(model)
    return bool(
        model.built
        and all(each.built for each in _optimizers(model))
        and (metrics is None or metrics.built)
    )


def _differs(saved: str, here: str) -> str:
    return (
        f"the model must be made as it was when the training was saved, which had {saved}, here "
        f"it is {here}: make the same model, or give Resume another folder"
    )


def _optimizers(model: Any) -> list[Any]:
    """The one of ``compile``, and those that the model holds for steps of its own."""
    held = [model.optimizer, *vars(model).values()]
    found = [each for each in held if isinstance(each, keras.optimizers.Optimizer)]
    return list({id(each): each for each in found}.values())


def _groups(model: Any) -> Iterator[tuple[str, _Group]]:
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    yield "model variables", [(each.path, each) for each in variables]
    kept = [each for optimizer in _optimizers(model) for each in optimizer.variables]
    yield "optimizer variables", [(each.path, each) for each in kept]
    yield _METRICS, [(each.path, each) for each in model.metrics_variables]
    if keras.backend.backend() == "torch":
        yield "buffers of PyTorch", [(name, each) for name, each in model.named_buffers()]


def _to_numpy(value: Any) -> Any:
    if hasattr(value, "detach"):
        return value.detach().cpu().numpy()
    return keras.ops.convert_to_numpy(value)


def _assign(variable: Any, array: Any) -> None:
    if hasattr(variable, "assign"):
        variable.assign(array)
    else:
        variable.copy_(keras.ops.convert_to_tensor(array))


def _generators() -> dict[str, Any]:
    kept = process_generators()
    seeds = internals.global_seed()
    if seeds is not None:
        kept["keras"] = np.array(keras.ops.convert_to_numpy(seeds))
    if keras.backend.backend() == "torch":  # Which draws from there for Dropout without a seed.
        import torch

        kept["torch"] = torch.get_rng_state().numpy().copy()
        if torch.cuda.is_available():
            kept["cuda"] = [each.cpu().numpy().copy() for each in torch.cuda.get_rng_state_all()]
    return kept


def _set_generators(state: dict[str, Any]) -> None:
    set_process_generators(state)
    seeds = internals.global_seed()
    if seeds is not None and "keras" in state:
        seeds.assign(state["keras"])
    if keras.backend.backend() == "torch" and "torch" in state:
        import torch

        torch.set_rng_state(torch.from_numpy(state["torch"].copy()))
        devices = state.get("cuda", [])
        if devices and torch.cuda.device_count() == len(devices):
            torch.cuda.set_rng_state_all([torch.from_numpy(each.copy()) for each in devices])
