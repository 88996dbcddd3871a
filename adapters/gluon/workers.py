"""Who makes the batches: what MXNet's arguments about workers mean, for this plan."""

from __future__ import annotations

import logging
from typing import Any

from adapters.bytecode import Used
from adapters.engine import Settings, obstacle_to_processes, usable_cpus
from adapters.gluon.importing import QUIET
from adapters.gluon.plan import GluonPlan

log = logging.getLogger("adapters")

_QUEUE = 10
# MXNet's engine threads cost a small operation as much again as the operation itself, and workers
# have nothing else to do meanwhile. 1.7x for the transform of MXNet's MNIST tutorial.
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
    """The workers of a loader.

    Args:
        plan: What they compute.
        num_workers: As the user gave it, like the three that follow.
        thread_pool: Threads.
        prefetch: Batches ahead.
        timeout: In seconds.
        own: There are functions of the user's own.
        used: What these draw from. Threads share the global random generators, and whoever draws
            in the training loop shares them too: a lock around the workers would not do, so the
            loop's own thread makes these batches.
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
    # Who hasn't said False has left it to us when processes are worth their start.
    at_once = thread_pool is False
    window = max(1, int(prefetch))
    return Settings(workers, processes, window, _ENVIRONMENT, timeout, at_once, used.process)


def _wants_processes(workers: Any, thread_pool: Any, own: bool) -> bool:
    if workers == "auto" and thread_pool == "auto":
        return False  # To be measured.
    return not (thread_pool is True or workers == 0 or (thread_pool == "auto" and not own))
