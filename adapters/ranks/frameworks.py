"""The place of this process as the frameworks know it that the program has imported.

Nothing is imported here: who isn't in ``sys.modules`` can't have been started. What is looked up
must not start anything, either: ``jax.process_count()`` starts JAX's backends, so it is asked only
when these run. Private names of JAX's stand in ``_jax`` alone; where they have moved, JAX says
nothing here, and the launcher is asked.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from adapters.ranks.claims import Claim


def _jax() -> Claim | None:
    """After ``jax.distributed.initialize``, or where a TPU's runtime has told JAX."""
    jax, name = sys.modules.get("jax"), "jax.process_index()"
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if getattr(state, "client", None) is not None:
        rank, world = getattr(state, "process_id", None), getattr(state, "num_processes", None)
        if isinstance(rank, int) and isinstance(world, int):
            return Claim(name, rank, world) if world > 1 else None
    running = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", None)
    if jax is None or not callable(running) or not running() or jax.process_count() < 2:
        return None
    return Claim(name, int(jax.process_index()), int(jax.process_count()))


def _torch() -> Claim | None:
    """After ``torch.distributed.init_process_group``."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return Claim(
        "torch.distributed", int(distributed.get_rank()), int(distributed.get_world_size())
    )


def _tensorflow() -> Claim | None:
    """``TF_CONFIG``: chiefs come before workers; evaluators and servers train on nothing.

    Raises:
        ValueError: It isn't what TensorFlow reads.
    """
    counts, kind, index = _tf_config()
    world, names = sum(counts.values()), list(counts)
    if kind not in names or not world or (index is None and counts[kind] > 1):
        return None
    before = sum(counts[name] for name in names[: names.index(kind)])
    return Claim("TF_CONFIG", before + (index or 0), world)


def _tf_config() -> tuple[dict[str, int], str | None, int | None]:
    """How many there are of each kind that trains, in order, and this one's kind and number.

    Raises:
        ValueError: It isn't what TensorFlow reads.
    """
    text = os.environ.get("TF_CONFIG", "") or "{}"
    try:
        config = json.loads(text)
        cluster, task = config.get("cluster") or {}, config.get("task") or {}
        counts = {name: len(cluster.get(name, ())) for name in ("chief", "master", "worker")}
        index = int(task["index"]) if "index" in task else None
        kind = task.get("type")
        return counts, None if kind is None else str(kind), index
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            'TF_CONFIG must be JSON like {"cluster": {"worker": ["host:port", ...]}, "task": '
            f'{{"type": "worker", "index": 0}}}}, got {text!r:.200}'
        ) from error


def unplaced_in_cluster() -> Iterator[str]:
    """What ``TF_CONFIG`` says where it has several processes, and not which of them this one is."""
    counts, kind, index = _tf_config()
    world = sum(counts.values())
    if world > 1 and (kind is None or (index is None and counts.get(kind, 0) > 1)):
        yield f"TF_CONFIG's cluster of {world} and its task's type={kind} and index={index}"


def _horovod() -> Claim | None:
    """After ``hvd.init()``, of whichever of Horovod's modules."""
    for name in ("keras", "tensorflow.keras", "tensorflow", "torch", "mxnet"):
        module: Any = sys.modules.get(f"horovod.{name}")
        started = getattr(module, "is_initialized", None)
        if callable(started) and started():
            return Claim(f"horovod.{name}", int(module.rank()), int(module.size()))
    return None


FRAMEWORKS: tuple[Callable[[], Claim | None], ...] = (_jax, _torch, _tensorflow, _horovod)
"""Who is asked, in this order; each says None unless it knows."""


def mxnet_workers() -> int | None:
    """Workers of MXNet's ``dist`` kvstores, of which only the kvstore itself knows the rank."""
    if os.environ.get("DMLC_ROLE") != "worker":
        return None
    number = os.environ.get("DMLC_NUM_WORKER", "")
    return int(number) if number.isdigit() else None
