"""Who is asked for this process's place, whom to believe, and what is a contradiction."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from adapters.ranks import ShardArgument, detected_rank

WORKERS = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}


def tf_config(kind: str, index: int, cluster: object = WORKERS) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


def place_of() -> tuple[int, int] | None:
    report = detected_rank()
    return None if report is None else report.shard


def said(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


IN_A_STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
OF_FOUR_TASKS = {**IN_A_STEP, "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"}
SPOKEN = {
    "torchrun": ({"RANK": "3", "WORLD_SIZE": "4"}, (3, 4)),
    "srun": ({**IN_A_STEP, "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, (0, 4)),
    "Open MPI": ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}, (1, 3)),
    "MPICH": ({"PMI_RANK": "1", "PMI_SIZE": "3"}, (1, 3)),
    "horovodrun": ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "3"}, (1, 3)),
    "a worker beside a chief": (tf_config("worker", 1, {"chief": ["h:1"], **WORKERS}), (2, 3)),
    "a chief": (tf_config("chief", 0, {"chief": ["h:1"], **WORKERS}), (0, 3)),
    "an interactive step": (
        {**IN_A_STEP, "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1"},
        (0, 1),
    ),
    # It runs in a step of ``srun -N2 -n2``, on the 2 of 3 hosts on which mpirun itself isn't.
    "a daemon of mpirun": (
        {**IN_A_STEP, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}
        | {"OMPI_COMM_WORLD_RANK": "13", "OMPI_COMM_WORLD_SIZE": "24"},
        (13, 24),
    ),
    "srun, which sets MPICH's": ({**OF_FOUR_TASKS, "PMI_RANK": "2", "PMI_SIZE": "4"}, (2, 4)),
    "srun, in an outer step": ({**OF_FOUR_TASKS, "PMI_RANK": "0", "PMI_SIZE": "1"}, (2, 4)),
    "mpiexec, whose daemons are tasks": (
        {**OF_FOUR_TASKS, "PMI_RANK": "5", "PMI_SIZE": "7"},
        (5, 7),
    ),
}
SILENT = {
    "a rank that is no number to int": {"RANK": "²", "WORLD_SIZE": "4"},
    "nothing": {},
    "half a launcher": {"RANK": "3"},
    "no numbers": {"RANK": "", "WORLD_SIZE": "four"},
    "the shell of sbatch": {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"},
    "an evaluator": tf_config("evaluator", 0),
    "MXNet's server": {"DMLC_ROLE": "server", "DMLC_NUM_WORKER": "2"},
}


@pytest.mark.parametrize("name", SPOKEN)
def test_rank_of_launcher(name, monkeypatch):
    variables, expected = SPOKEN[name]
    said(monkeypatch, variables)
    assert place_of() == expected


@pytest.mark.parametrize("name", SILENT)
def test_no_rank(name, monkeypatch):
    said(monkeypatch, SILENT[name])
    assert place_of() is None


UNPLACED = {
    "WORLD_SIZE=3 and RANK=None": {"WORLD_SIZE": "3"},
    "HOROVOD_SIZE=3 and HOROVOD_RANK=": {"HOROVOD_SIZE": "3", "HOROVOD_RANK": ""},
    "WORLD_SIZE=three and RANK=1": {"RANK": "1", "WORLD_SIZE": "three"},
    "SLURM_STEP_NUM_TASKS=4 and SLURM_PROCID=None": {**IN_A_STEP, "SLURM_STEP_NUM_TASKS": "4"},
    "TF_CONFIG's cluster of 2 and its task's type=worker and index=None": {
        "TF_CONFIG": json.dumps({"cluster": WORKERS, "task": {"type": "worker"}})
    },
}


@pytest.mark.parametrize("told", UNPLACED)
def test_rank_missing_among_several(told, monkeypatch):
    said(monkeypatch, UNPLACED[told])
    shard = ShardArgument("auto")
    assert shard.value is None
    with pytest.raises(ValueError, match="needs the rank of this process") as raised:
        shard.settle()
    assert f"got {told}: correct the variables" in str(raised.value)
    said(monkeypatch, {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"})
    assert shard.settle()
    assert shard.value == (1, 4)


# --- frameworks ---


def test_rank_of_torch(monkeypatch, in_torch):
    never = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch.distributed", never)
    assert place_of() is None
    in_torch(1, 3)
    assert place_of() == (1, 3)


def test_rank_of_horovod(monkeypatch):
    started = []
    module = SimpleNamespace(is_initialized=lambda: bool(started), rank=lambda: 2, size=lambda: 5)
    monkeypatch.setitem(sys.modules, "horovod.torch", module)
    assert place_of() is None
    started.append(True)
    assert place_of() == (2, 5)


@pytest.mark.parametrize(
    ("client", "world", "expected"),
    [(None, 4, None), ("a client", 4, (1, 4)), ("a client", 1, None)],
)
def test_rank_of_jax(client, world, expected, monkeypatch):
    state = SimpleNamespace(client=client, process_id=1 % world, num_processes=world)
    module = SimpleNamespace(global_state=state)
    monkeypatch.setitem(sys.modules, "jax._src.distributed", module)
    assert place_of() == expected


def test_rank_of_jax_with_other_private_names(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace())
    assert place_of() is None


_OF_JAX = """
import sys, jax, jax.distributed
from adapters.ranks import detected_rank
state = sys.modules["jax._src.distributed"].global_state
print(state.client, state.process_id, state.num_processes, detected_rank())
print(sys.modules["jax._src.xla_bridge"].backends_are_initialized())
"""


def test_rank_of_the_installed_jax():
    pytest.importorskip("jax", reason="JAX isn't installed")
    assert subprocess.check_output([sys.executable, "-c", _OF_JAX]) == b"None 0 1 None\nFalse\n"


# --- whom to believe ---


NESTED = {
    "torchrun on Slurm's hosts": (5, {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}),
    "dealt in turn": (4, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}),
    "one task": (5, {**IN_A_STEP, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}),
    "the same": (5, {"SLURM_PROCID": "5", "SLURM_NTASKS": "8"}),
}


@pytest.mark.parametrize("framework", [False, True])
@pytest.mark.parametrize("name", NESTED)
def test_launchers_nested(name, framework, monkeypatch, in_torch):
    rank, outer = NESTED[name]
    said(monkeypatch, outer)
    if framework:
        in_torch(rank, 8)
    else:
        said(monkeypatch, {"RANK": str(rank), "WORLD_SIZE": "8"})
    assert place_of() == (rank, 8)


CONTRADICTING = {
    "other ranks": {"SLURM_PROCID": "2", "SLURM_NTASKS": "4"},
    "more tasks": {"SLURM_PROCID": "1", "SLURM_NTASKS": "8"},
    "another host": {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"},
}


@pytest.mark.parametrize("name", CONTRADICTING)
def test_contradiction_names_both(name, monkeypatch):
    said(monkeypatch, {"RANK": "0", "WORLD_SIZE": "4", **CONTRADICTING[name]})
    message = r'shard="auto" needs one .*torchrun \(RANK, WORLD_SIZE\) says 0 of 4, Slurm .*: give'
    with pytest.raises(ValueError, match=message):
        ShardArgument("auto")


def test_frameworks_contradict(monkeypatch, in_torch):
    in_torch(1, 2)
    said(monkeypatch, tf_config("worker", 0))
    with pytest.raises(ValueError, match=r"torch\.distributed says 1 of 2, TF_CONFIG says 0 of 2"):
        ShardArgument("auto")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "4", "WORLD_SIZE": "4"}, r"rank in range\(world\), and torchrun .* says 4 of 4"),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, r"rank in range\(world\), .* says -1 of 4"),
        ({"TF_CONFIG": "{worker"}, r"TF_CONFIG must be JSON like .*got '\{worker'"),
        (
            {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "2"},
            r"2 workers \(DMLC_NUM_WORKER\): give .* shard=kv",
        ),
    ],
    ids=["too large", "negative", "TF_CONFIG", "MXNet's kvstore"],
)
def test_report_that_cannot_be(variables, message, monkeypatch):
    said(monkeypatch, variables)
    with pytest.raises(ValueError, match=message):
        ShardArgument("auto")


# --- when it is settled, and what is said ---


def test_auto_settled_at_once(monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="adapters")
    said(monkeypatch, {"RANK": "1", "WORLD_SIZE": "4"})
    asked = ShardArgument("auto")
    assert (asked.value, asked.settle()) == ((1, 4), False)
    expected = 'shard="auto": 1 of 4, as torchrun (RANK, WORLD_SIZE) says 1 of 4'
    assert [record.getMessage() for record in caplog.records] == [expected]


def test_auto_alone(caplog):
    caplog.set_level(logging.INFO, logger="adapters")
    asked = ShardArgument("auto")
    assert (asked.settle(), asked.value) == (False, (0, 1))
    assert "0 of 1, all of the data" in caplog.text


def warnings_of(caplog, *shards):
    for shard in shards:
        each = shard if isinstance(shard, ShardArgument) else ShardArgument(shard)
        each.notice()
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


MXNET = {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "2"}
SECOND_OF_FOUR = {"RANK": "1", "WORLD_SIZE": "4"}


@pytest.mark.parametrize(
    ("variables", "shards", "message"),
    [
        (SECOND_OF_FOUR, [None, None], r'in each of 4 processes \(torchrun.*give shard="auto"'),
        (SECOND_OF_FOUR, [(2, 4), (2, 4)], r"shard=\(2, 4\) is another process's, as torchrun"),
        (MXNET, [None, (1, 2)], "each of 2 workers.*shard=kv"),
    ],
    ids=["all of the data", "another's shard", "MXNet's workers"],
)
def test_warning(variables, shards, message, monkeypatch, caplog):
    said(monkeypatch, variables)
    (line,) = warnings_of(caplog, *shards)
    assert re.search(message, line)


def test_warning_of_a_framework_started_too_late(caplog, in_torch):
    shard = ShardArgument("auto")
    shard.settle()
    assert warnings_of(caplog, shard) == []
    in_torch(1, 2)
    (line,) = warnings_of(caplog, shard)
    assert "before the loader is used" in line


@pytest.mark.parametrize(
    ("variables", "shards"),
    [
        ({}, [None, (0, 1), (1, 2)]),
        (SECOND_OF_FOUR, [(1, 4), (0, 1), (1, 2)]),
        ({"RANK": "0", "WORLD_SIZE": "1"}, [None]),
        ({"RANK": "0", "WORLD_SIZE": "4", **CONTRADICTING["other ranks"]}, [None]),
    ],
)
def test_no_warning(variables, shards, monkeypatch, caplog):
    said(monkeypatch, variables)
    assert warnings_of(caplog, *shards) == []
