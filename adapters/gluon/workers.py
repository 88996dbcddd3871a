"""Worker settings of a loader, from MXNet's arguments and the plan."""

from __future__ import annotations

import logging
from typing import Any

from adapters.bytecode import Used
from adapters.engine import Settings, obstacle_to_processes, usable_cpus
from adapters.gluon.importing import QUIET
from adapters.gluon.plan import GluonPlan

log = logging.getLogger("adapters")

_QUEUE = 10
# MXNet's engine threads double the time of a small operation, and workers have nothing else to do
# meanwhile. Without them: 1.7x for the transform of MXNet's MNIST tutorial.
_ENVIRONMENT = {"MXNET_ENGINE_TYPE": "NaiveEngine", "OMP_NUM_THREADS": "1", QUIET: "1"}


def settings_of(
    plan: GluonPlan,
    num_workers: Any,
    thread_pool: Any,
    prefetch: Any,
    timeout: float,
    own: bool,
    used: Used,
) -> Settings:
    """Worker settings of a loader.

    Args:
        plan: Plan of the batches.
        num_workers: Argument of ``gluon_loader``.
        thread_pool: Argument of ``gluon_loader``.
        prefetch: Argument of ``gluon_loader``.
        timeout: Argument of ``gluon_loader``, in seconds.
        own: True if there are user functions.
        used: Random generators that user functions use. Threads share the global generators with
            the training loop, so a lock around the workers isn't enough: the loop's thread computes
            these batches.
    """
    workers = num_workers if num_workers == "auto" else max(0, num_workers)
    processes = _wants_processes(workers, thread_pool, own)
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
    # Unless thread_pool is False, the engine decides when processes are worth their start.
    at_once = thread_pool is False
    window = max(1, int(prefetch))
    return Settings(workers, processes, window, _ENVIRONMENT, timeout, at_once, used.process)


def _wants_processes(workers: Any, thread_pool: Any, own: bool) -> bool:
    if workers == "auto" and thread_pool == "auto":
        return False  # The engine measures.
    return not (thread_pool is True or workers == 0 or (thread_pool == "auto" and not own))
