"""Arguments of ``gluon_loader``: checks, and the worker settings that they mean."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import mxnet as mx

from adapters.arguments import check_above, check_integer
from adapters.engine import Settings, obstacle_to_processes, usable_cpus
from adapters.generator_search import Used
from adapters.gluon.importing import QUIET
from adapters.gluon.plan import GluonPlan
from adapters.sources import Source

log = logging.getLogger("adapters")

_QUEUE = 10
# Start of two processes beside the training loop, on two cores: forks, and interpreters that import
# MXNet.
_FORK_SECONDS, _START_SECONDS = 0.1, 2.0
# Libraries whose threads do not survive a fork.
_THREADED = ("jax", "obstore", "tensorflow", "torch")
# For fresh interpreters: MXNet's engine threads double the time of a small operation, and workers
# have nothing else to do meanwhile. Without them: 1.7x for the transform of MXNet's MNIST tutorial.
_ENVIRONMENT = {"MXNET_ENGINE_TYPE": "NaiveEngine", "OMP_NUM_THREADS": "1", QUIET: "1"}


def check_workers(num_workers: Any, prefetch: Any, thread_pool: Any, timeout: Any) -> None:
    """Check the arguments about workers."""
    if not _is_auto(num_workers):
        check_integer("num_workers", num_workers, None, ' or "auto"')
    if prefetch is not None:
        check_integer("prefetch", prefetch, 0, " or None")
    _check_switch("thread_pool", thread_pool)
    check_above("timeout", timeout, 0, " seconds")


def check_device(ctx: Any, pin_memory: Any, pin_device_id: Any) -> None:
    """Check the arguments about a device, and that there is one."""
    check_integer("pin_device_id", pin_device_id, 0)
    _check_switch("pin_memory", pin_memory)
    if ctx is not None and not isinstance(ctx, mx.Context):
        raise TypeError(f"ctx must be an mxnet.Context such as mx.gpu(0), or None, got {ctx!r}")
    if ctx is not None and ctx.device_type == "gpu":
        gpus = mx.context.num_gpus()
        if ctx.device_id >= gpus:
            raise ValueError(
                f"ctx must be a device of this machine, on which this MXNet sees {gpus} GPUs, got "
                f"{ctx}: give mx.cpu(), or none"
            )


def _check_switch(name: str, value: Any) -> None:
    if not _is_auto(value) and value not in (True, False):
        raise TypeError(f'{name} must be True, False or "auto", got {value!r}')


def check_dataset(dataset: Any, counted: bool) -> None:
    """Check that there are samples by number, ``counted`` ones without a sampler."""
    shape = getattr(dataset, "shape", None)
    if isinstance(shape, tuple) and not shape:
        raise TypeError(f"dataset must have samples, got a single number, {dataset!r:.200}")
    if isinstance(dataset, tuple) and not hasattr(dataset, "_fields"):
        if any(isinstance(member, Source) for member in dataset):
            raise TypeError(
                "dataset as a tuple must hold arrays, got a data set in it: "
                "mxnet.gluon.data.ArrayDataset(a, b) pairs data sets; images with their labels are "
                "open_images(list(zip(files, labels)))"
            )
        lengths = [len(member) for member in dataset if hasattr(member, "__len__")]
        if not dataset or len(lengths) < len(dataset):
            raise TypeError(f"dataset as a tuple must hold arrays, got {dataset!r:.200}")
        if len(set(lengths)) > 1:
            raise ValueError(f"arrays of dataset must have equal lengths, got {lengths}")
        return
    if isinstance(dataset, (str, os.PathLike)):
        return  # Checked when it is opened.
    has_samples = hasattr(dataset, "__getitem__") and (hasattr(dataset, "__len__") or not counted)
    if isinstance(dataset, bytes) or not has_samples:
        raise TypeError(
            "dataset must be a Gluon data set, an array, a tuple of arrays, the path of a record "
            "file, or an object with __len__ and __getitem__, "
            f"got {dataset!r:.200}: turn a generator into a list"
        )


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def settings_of(
    plan: GluonPlan, num_workers: Any, thread_pool: Any, prefetch: Any, timeout: float, used: Used
) -> Settings:
    """Worker settings for these arguments of a loader; ``used`` are generators of user functions.

    Threads share the global ones with the training loop, so a lock around the workers isn't enough:
    the loop's thread computes these batches.
    """
    workers = num_workers if _is_auto(num_workers) else max(0, num_workers)
    # A batch_transform alone doesn't justify processes, unless it uses global generators.
    own = plan.calls_users_functions or bool(used.possibly)
    # With "auto" workers, the engine measures.
    wanted = own and workers != "auto" if _is_auto(thread_pool) else not thread_pool
    processes = wanted and workers != 0
    obstacle = obstacle_to_processes(plan) if processes else None
    if obstacle and not obstacle.possible:
        log.warning("batches are computed inline, as processes can't be used: %s", obstacle)
        processes, workers = False, 0
    if workers == "auto" and thread_pool is True:
        workers = usable_cpus()
    if workers and workers != "auto" and not processes and used.certainly:
        log.info(
            "batches are made one at a time, when they are asked for, and not by %d threads, which "
            "would share the random generators of %s that the transforms draw from: "
            "thread_pool=False has processes make them at once",
            workers,
            ", ".join(sorted(used.certainly)),
        )
        workers = 0
    if prefetch is None:
        prefetch = _QUEUE if workers == "auto" else 2 * workers
    return Settings(
        workers,
        processes,
        max(1, int(prefetch)),
        _ENVIRONMENT,
        timeout,
        at_once=thread_pool is False,  # Else the engine decides when processes pay their start.
        isolated=used.process,
        start_seconds=_FORK_SECONDS if may_fork() else _START_SECONDS,
        may_fork=may_fork,
    )


def may_fork() -> bool:
    """True if worker processes may be forks of this one, as those of MXNet's ``DataLoader`` are.

    MXNet stops its engine's threads for a fork. Other libraries don't.
    """
    return not any(name in sys.modules for name in _THREADED)
