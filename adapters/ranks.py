"""The rank of this process in its job, and the shard that its loader reads.

    frameworks, launchers --RankReport--> ShardArgument("auto") --> (index, count)

Detection imports and starts nothing: frameworks are looked up in ``sys.modules``. ``_jax`` alone
uses private names, JAX's; if these have moved, JAX reports nothing and the launchers decide.

Launchers are read from environment variables, which are inherited, for example by a program in the
shell of a Slurm job. So a launcher counts only if its variables are those of a task.

A framework takes precedence over a launcher, and an inner launcher over an outer one: Slurm may
start one process on each of 2 hosts, and each of these 8 processes with ``torchrun``. The outer
launcher then numbers hosts and the inner one processes. Other reports contradict each other.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

log = logging.getLogger("adapters")

_warned: set[str] = set()
"""Warnings already given."""


class RankReport(NamedTuple):
    """The rank that one framework or launcher reports."""

    source: str
    """The framework or launcher with its variables: ``"torchrun (RANK, WORLD_SIZE)"``."""
    rank: int
    """The number of this process, from 0."""
    world: int
    """The number of processes."""

    def __str__(self) -> str:
        """The report in words, for messages."""
        return f"{self.source} says {self.rank} of {self.world}"

    @property
    def shard(self) -> tuple[int, int]:
        """``(index, count)``."""
        return self.rank, self.world


def detected_rank() -> RankReport | None:
    """Detect the rank of this process; None if nothing reports one.

    Raises:
        ValueError: Two reports contradict each other, a rank is out of range, or only MXNet's
            kvstore knows it.
    """
    frameworks = [each for each in (_jax(), _torch(), _tensorflow(), _horovod()) if each]
    workers = mxnet_workers()
    if not frameworks and workers is not None and workers > 1:
        raise ValueError(
            f'shard="auto" needs the rank of this process, and MXNet says only that there are '
            f"{workers} workers (DMLC_NUM_WORKER): give gluon_loader shard=kv, the kvstore of "
            'mx.kv.create("dist_sync"), or shard=(kv.rank, kv.num_workers)'
        )
    launchers = _launchers()
    reports = [*frameworks, *launchers]
    for report in reports:
        if not 0 <= report.rank < report.world:
            raise ValueError(
                f'shard="auto" needs a rank in range(world), and {report}: correct the variables, '
                "or give shard=(index, count)"
            )
    for other in reports[1:]:
        nests = other in launchers and _may_have_started(other, reports[0])
        if other.shard != reports[0].shard and not nests:
            raise ValueError(
                'shard="auto" needs one (rank, world) for this process, and '
                f"{reports[0]}, {other}: give shard=(index, count) yourself, or unset the "
                "variables of the one that is wrong"
            )
    return reports[0] if reports else None


def incomplete_reports() -> Iterator[str]:
    """Describe variables that report several processes without the rank of this one."""
    pairs = [*_VARIABLES.values()]
    if "SLURM_STEP_ID" in os.environ:  # Otherwise this is the job's shell: one process.
        pairs.append(("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))
    for rank, world in pairs:
        numbers = _number(rank), _number(world)
        several = (numbers[1] or 0) > 1 or (world in os.environ and (numbers[0] or 0) > 0)
        if several and None in numbers:
            yield f"{world}={os.environ[world]} and {rank}={os.environ.get(rank)}"
    counts, kind, index = _tf_config()
    size = sum(counts.values())
    if size > 1 and (kind is None or (index is None and counts.get(kind, 0) > 1)):
        yield f"TF_CONFIG's cluster of {size} and its task's type={kind} and index={index}"


def mxnet_workers() -> int | None:
    """Number of workers of MXNet's ``dist`` kvstores; only the kvstore knows their ranks."""
    if os.environ.get("DMLC_ROLE") != "worker":
        return None
    number = os.environ.get("DMLC_NUM_WORKER", "")
    return int(number) if number.isdigit() else None


def _may_have_started(outer: RankReport, inner: RankReport) -> bool:
    """True if the processes of ``outer`` may have started those of ``inner``, this one included."""
    if outer.world >= inner.world or inner.world % outer.world:
        return False
    # torchrun numbers processes in blocks, mpirun --map-by node round-robin.
    each = inner.world // outer.world
    return outer.rank in (inner.rank // each, inner.rank % outer.world)


# --- frameworks ---


def _jax() -> RankReport | None:
    """The rank set by ``jax.distributed.initialize``."""
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    rank, world = getattr(state, "process_id", None), getattr(state, "num_processes", None)
    started = getattr(state, "client", None) is not None
    if not (started and isinstance(rank, int) and isinstance(world, int) and world > 1):
        return None
    return RankReport("jax.process_index()", rank, world)


def _torch() -> RankReport | None:
    """The rank set by ``torch.distributed.init_process_group``."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return RankReport(
        "torch.distributed", int(distributed.get_rank()), int(distributed.get_world_size())
    )


def _tensorflow() -> RankReport | None:
    """The rank in ``TF_CONFIG``: chiefs, then workers; evaluators and servers don't train."""
    counts, kind, index = _tf_config()
    world, names = sum(counts.values()), list(counts)
    if kind not in names or not world or (index is None and counts[kind] > 1):
        return None
    before = sum(counts[name] for name in names[: names.index(kind)])
    return RankReport("TF_CONFIG", before + (index or 0), world)


def _tf_config() -> tuple[dict[str, int], str | None, int | None]:
    """The number of training processes of each kind, and the kind and index of this one."""
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


def _horovod() -> RankReport | None:
    """The rank set by ``hvd.init()`` in any of Horovod's modules."""
    for name in ("keras", "tensorflow.keras", "tensorflow", "torch", "mxnet"):
        module: Any = sys.modules.get(f"horovod.{name}")
        started = getattr(module, "is_initialized", None)
        if callable(started) and started():
            return RankReport(f"horovod.{name}", int(module.rank()), int(module.size()))
    return None


# --- launchers ---


_VARIABLES = {
    "torchrun": ("RANK", "WORLD_SIZE"),
    "horovodrun": ("HOROVOD_RANK", "HOROVOD_SIZE"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "MPICH": ("PMI_RANK", "PMI_SIZE"),
}
"""Variables for the rank and the world of each launcher but Slurm, innermost first."""


def _launchers() -> list[RankReport]:
    """Innermost first: launchers of single processes before launchers of hosts.

    ``srun`` sets MPICH's variables for its tasks, too, or passes on those of an outer step. Slurm's
    own variables then take precedence, unless there are more processes than tasks: in that case
    ``mpiexec`` has started its daemons with ``srun``. So does ``mpirun``, and the processes of its
    daemons inherit Slurm's variables, which are ignored if Open MPI reports a rank.
    """
    found = {name: _pair(name, *variables) for name, variables in _VARIABLES.items()}
    mpich, task = found["MPICH"], _slurm_task()
    if mpich is not None and task is not None and mpich.world <= task.world:
        found["MPICH"] = None
    if not (found["Open MPI"] or found["MPICH"]):
        found["Slurm"] = task
    return [report for report in found.values() if report is not None]


def _number(name: str) -> int | None:
    """The integer in an environment variable; None if it is unset or isn't an integer."""
    text = os.environ.get(name, "").strip()
    return int(text) if re.fullmatch("-?[0-9]+", text) else None


def _pair(launcher: str, rank: str, world: str) -> RankReport | None:
    numbers = _number(rank), _number(world)
    if numbers[0] is None or numbers[1] is None:
        return None
    return RankReport(f"{launcher} ({rank}, {world})", numbers[0], numbers[1])


def _slurm_task() -> RankReport | None:
    """The rank in Slurm's variables; a step's number of tasks may differ from its job's."""
    step = _number("SLURM_STEP_NUM_TASKS")
    world = "SLURM_NTASKS" if step is None else "SLURM_STEP_NUM_TASKS"
    report = _pair("Slurm", "SLURM_PROCID", world)
    in_job = os.environ.get("SLURM_JOB_ID") is not None
    in_step = any(os.environ.get(name) is not None for name in ("SLURM_STEP_ID", "SLURM_STEPID"))
    # The shell of sbatch or salloc has a number of tasks and rank 0, but isn't a task.
    if report is not None and in_job and not in_step and report.rank == 0:
        return None
    return report


# --- the argument of a loader ---


class ShardArgument:
    """The argument ``shard`` of a loader.

    ``"auto"`` is resolved when the loader is created, if a framework or launcher reports a rank by
    then. Otherwise it is resolved on first use, because ``torch.distributed`` and others may be
    initialised in between. A resolved value is final, also in copies and pickles.

    Args:
        shard: None, ``(index, count)``, ``"auto"``, or an MXNet kvstore; already validated.

    Raises:
        ValueError: ``"auto"`` can't be resolved: a rank is out of range, reports contradict each
            other, or only MXNet's kvstore knows the rank.
    """

    def __init__(self, shard: Any) -> None:
        self.auto = isinstance(shard, str)
        self.value: tuple[int, int] | None = None
        if self.auto:
            self.value = _detected_shard()
        elif hasattr(shard, "num_workers"):
            self.value = int(shard.rank), int(shard.num_workers)
            kind = getattr(shard, "type", "")
            log.info("shard: %d of %d, as the kvstore %s says", *self.value, kind)
        elif shard is not None:
            self.value = int(shard[0]), int(shard[1])

    @property
    def requested(self) -> tuple[int, int] | None:
        """``(index, count)``, or ``(0, 1)`` while unresolved; None without the argument."""
        return self.part if self.auto else self.value

    @property
    def part(self) -> tuple[int, int]:
        """``(index, count)``; ``(0, 1)`` without the argument."""
        return self.value or (0, 1)

    def settle(self) -> bool:
        """Resolve ``"auto"``, for good.

        Returns:
            True if ``part`` has changed.

        Raises:
            ValueError: The reports contradict each other or are incomplete.
        """
        if not self.auto or self.value is not None:
            return False
        self.value = _detected_shard()
        if self.value is None:
            if found := "; ".join(incomplete_reports()):
                raise ValueError(
                    'shard="auto" needs the rank of this process, which can\'t be read, got '
                    f"{found}: correct the variables, or give shard=(index, count)"
                )
            log.info(
                'shard="auto": 0 of 1, all of the data: neither JAX, PyTorch, TF_CONFIG or Horovod '
                "nor torchrun, Open MPI, MPICH or Slurm says that there are more processes"
            )
            self.value = 0, 1
        return self.part != (0, 1)

    def notice(self) -> None:
        """Warn once if another process of the job seems to load the same data."""
        shard = self.value
        try:
            report = detected_rank()
        except ValueError:  # Reports that contradict each other say nothing.
            report, workers = None, mxnet_workers() or 0
            if shard is None and workers > 1:
                _warn(
                    "all of the data is loaded in each of %d workers (DMLC_NUM_WORKER): give "
                    "shard=kv, the kvstore, for a part of it",
                    workers,
                )
        if report is None or report.world == 1 or shard == report.shard:
            return
        if self.auto and shard == (0, 1):
            _warn(
                'shard="auto" gives all of the data, as nothing reported a rank when the loader '
                "was first used; now %s: start that before the loader is used",
                report,
            )
        elif shard is None:
            _warn(
                'all of the data is loaded in each of %d processes (%s): give shard="auto" for '
                "a part of it; shard=(0, 1) says that it is meant",
                report.world,
                report,
            )
        elif shard[1] == report.world:
            _warn("shard=%s is another process's, as %s", shard, report)

    def warn_of_batches(self, state: Any, samples: int, elastic: bool) -> None:
        """Warn that a sharded loader resumes from a state that counts batches of ``samples``.

        If ``elastic``, states of this loader count samples when it has a ``shard``.
        """
        remedy = "With shard=..., state_dict() counts samples, which any number of shards can load"
        log.warning(
            "load_state_dict: %s counts batches, taken to be of %d samples over all shards, as "
            "here: right only if the run that it comes from had the same%s",
            state,
            samples,
            f". {remedy}" if elastic else "",
        )


def _detected_shard() -> tuple[int, int] | None:
    report = detected_rank()
    if report is None:
        return None
    log.info('shard="auto": %d of %d, as %s', report.rank, report.world, report)
    return report.shard


def _warn(message: str, *values: object) -> None:
    if message not in _warned:
        _warned.add(message)
        log.warning(message, *values)
