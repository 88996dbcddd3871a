"""The place of this process as what has started it says, in environment variables.

Variables are inherited: those of a Slurm job's shell say nothing about a program that is started in
it without ``srun``. So a launcher is heard only where its variables are those of a task.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator

from adapters.ranks.claims import Claim


def _number(name: str) -> int | None:
    """An environment variable that is a number; None where it is none, or isn't there."""
    text = os.environ.get(name, "").strip()
    return int(text) if re.fullmatch("-?[0-9]+", text) else None


def _pair(launcher: str, rank: str, world: str) -> Claim | None:
    numbers = _number(rank), _number(world)
    if numbers[0] is None or numbers[1] is None:
        return None
    return Claim(f"{launcher} ({rank}, {world})", numbers[0], numbers[1])


_TORCHRUN = "RANK", "WORLD_SIZE"
_HOROVODRUN = "HOROVOD_RANK", "HOROVOD_SIZE"
_OPEN_MPI = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"
_MPICH = "PMI_RANK", "PMI_SIZE"


def _torchrun() -> Claim | None:
    return _pair("torchrun", *_TORCHRUN)


def _horovodrun() -> Claim | None:
    return _pair("horovodrun", *_HOROVODRUN)


def _open_mpi() -> Claim | None:
    return _pair("Open MPI", *_OPEN_MPI)


def _mpich() -> Claim | None:
    """Of MPICH's and Intel MPI's ``mpiexec``, and of others that speak PMI.

    ``srun`` sets these for its tasks, too, or hands on those of an outer step's: it is heard itself
    unless there are more processes than tasks, as where ``mpiexec`` has started its daemons by it.
    """
    claim, task = _pair("MPICH", *_MPICH), _task_of_slurm()
    return claim if claim is None or task is None or claim.world > task.world else None


def _slurm() -> Claim | None:
    """Of ``srun``'s tasks.

    ``mpirun`` starts its daemons on the other hosts by ``srun``, and what they start inherits the
    daemon's variables: where Open MPI or MPICH speaks, Slurm's are of no use.
    """
    return None if _open_mpi() or _mpich() else _task_of_slurm()


def _task_of_slurm() -> Claim | None:
    """As Slurm's variables say it. A step has its own number of tasks, its job another."""
    step = _number("SLURM_STEP_NUM_TASKS")
    world = "SLURM_NTASKS" if step is None else "SLURM_STEP_NUM_TASKS"
    claim = _pair("Slurm", "SLURM_PROCID", world)
    in_job = os.environ.get("SLURM_JOB_ID") is not None
    in_step = any(os.environ.get(name) is not None for name in ("SLURM_STEP_ID", "SLURM_STEPID"))
    # The shell of sbatch and of salloc has the number of tasks, and a rank of 0, but is no task.
    if claim is not None and in_job and not in_step and claim.rank == 0:
        return None
    return claim


def _sagemaker() -> Claim | None:
    """Hosts; what runs on each of them is numbered by another launcher."""
    name, hosts = os.environ.get("SM_CURRENT_HOST"), _hosts()
    if name not in hosts:
        return None
    # SageMaker's own scripts number them in this order, however the list is given.
    return Claim("SageMaker (SM_CURRENT_HOST, SM_HOSTS)", sorted(hosts).index(name), len(hosts))


def _hosts() -> list[str]:
    try:
        hosts = json.loads(os.environ.get("SM_HOSTS", ""))
    except ValueError:
        return []
    named = isinstance(hosts, list) and all(isinstance(host, str) for host in hosts)
    return hosts if named else []


def unplaced() -> Iterator[str]:
    """What says that there are several processes, and not which of them this one is."""
    pairs = [_TORCHRUN, _HOROVODRUN, _OPEN_MPI, _MPICH]
    if "SLURM_STEP_ID" in os.environ:  # Else the shell of a job, which is one process.
        pairs.append(("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))
    for rank, world in pairs:
        numbers = _number(rank), _number(world)
        several = (numbers[1] or 0) > 1 or (world in os.environ and (numbers[0] or 0) > 0)
        if several and None in numbers:
            yield f"{world}={os.environ[world]} and {rank}={os.environ.get(rank)}"
    name, hosts = os.environ.get("SM_CURRENT_HOST"), os.environ.get("SM_HOSTS", "")
    if name not in _hosts() and "," in hosts:
        yield f"SM_HOSTS={hosts} and SM_CURRENT_HOST={name}"


LAUNCHERS: tuple[Callable[[], Claim | None], ...] = (
    _torchrun,
    _horovodrun,
    _open_mpi,
    _mpich,
    _slurm,
    _sagemaker,
)
"""Who is asked, what starts single processes before what starts those."""
