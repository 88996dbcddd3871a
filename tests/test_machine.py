"""What the machine has: CPUs that may be used, features that speed depends on, time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapters import clock, cpus, machine
from adapters.cli.main import main
from adapters.clock import Spent
from adapters.cpus import usable_cpus


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Control groups of a test's own, on a machine of 8 CPUs."""
    monkeypatch.setattr(cpus, "_GROUPS", tmp_path)
    monkeypatch.setattr(cpus, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    return tmp_path


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


@pytest.mark.parametrize(
    ("told", "count"),
    [
        ("max 100000", 8),
        ("300000 100000", 3),
        ("250000 100000", 3),
        ("10000 100000", 1),
        ("1600000 100000", 8),
        ("nonsense", 8),
    ],
)
def test_cpus_of_a_quota(groups, monkeypatch, told, count):
    """Part of a CPU counts as one."""
    assert usable_cpus() == 8  # The affinity.
    write(groups, own="0::/a/b")
    write(groups / "a" / "b", cpu__max=told)
    assert usable_cpus() == count
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert usable_cpus() == 1


@pytest.mark.parametrize(("quota", "count"), [("-1", 8), ("200000", 2), ("150000", 2), ("1", 1)])
def test_cpus_of_a_quota_of_version_1(groups, quota, count):
    write(groups, own="7:memory:/a\n4:cpu,cpuacct:/a\n0::/a")
    folder = groups / "cpu" / "a"
    write(folder, cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000")
    assert usable_cpus() == count


def test_cpus_of_the_smallest_quota_around(groups):
    write(groups, own="0::/a/b/c")
    write(groups / "a" / "b", cpu__max="200000 100000")
    write(groups / "a" / "b" / "c", cpu__max="400000 100000")
    assert usable_cpus() == 2


def test_cpus_of_a_container(groups):
    write(groups, own="0::/docker/0123", cpu__max="400000 100000")
    assert usable_cpus() == 4


def test_cpus_outside_of_the_groups(groups, monkeypatch):
    monkeypatch.setattr(cpus, "_GROUPS", groups / "inside")
    write(groups, own="0::/a", cpu__max="100000 100000")
    assert usable_cpus() == 8


# --- features ---

FLAGS = {"sse", "avx512bw", "avx512vl", "avx512vbmi"}


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch):
    """Makes a machine of it that has two CPUs and these."""

    monkeypatch.delenv("ADAPTERS_VECTORS", raising=False)

    def made(kernel: object, flags: set[str], *gpus: str) -> None:
        monkeypatch.setattr(machine, "usable_cpus", lambda: 2)
        monkeypatch.setattr(machine, "gpu_names", lambda: gpus)
        monkeypatch.setattr(machine, "load", lambda: kernel)
        monkeypatch.setattr(machine, "_flags", lambda: flags)

    return made


@pytest.mark.parametrize(
    ("kernel", "flags", "gpus", "said"),
    [
        (object(), FLAGS, (), "2 CPUs, native kernel, AVX-512 VBMI, no GPU"),
        (object(), FLAGS - {"avx512vbmi"}, (), "2 CPUs, native kernel, no AVX-512 VBMI, no GPU"),
        (None, FLAGS, ("H200",), "2 CPUs, no native kernel, H200"),
    ],
)
def test_features_in_a_line(pretend, monkeypatch, kernel, flags, gpus, said):
    pretend(kernel, flags, *gpus)
    assert str(machine.found_features()) == said
    monkeypatch.setenv("ADAPTERS_VECTORS", "0")
    # Without the kernel, VBMI is worth nothing.
    names = machine.found_features().names
    assert names == (frozenset() if kernel is None else {"native kernel"})


def test_features_come_first_in_the_doctor(pretend, monkeypatch, capsys):
    pretend(None, set())
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.startswith("features: 2 CPUs, no native kernel, no GPU\n")


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the driver's program would be; nothing else is found."""
    monkeypatch.setenv("PATH", str(tmp_path))
    machine.gpu_names.cache_clear()
    yield tmp_path / "nvidia-smi"
    machine.gpu_names.cache_clear()


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("echo 'NVIDIA H100 80GB'\necho Tesla V100\n", ("NVIDIA H100 80GB", "Tesla V100")),
        ("echo 'no driver'\nexit 9\n", ()),
    ],
)
def test_gpus_have_names(nvidia_smi: Path, script: str, names: tuple[str]) -> None:
    assert machine.gpu_names() == ()  # No driver.
    machine.gpu_names.cache_clear()
    nvidia_smi.write_text("#!/bin/sh\n" + script)
    nvidia_smi.chmod(0o755)
    assert machine.gpu_names() == names


# --- the time of a thread on a busy machine ---

BURNERS_PER_CPU = 4
# Ends by itself, should nobody be left to end it.
BURNER = """
import time
until = time.monotonic() + 60
print(flush=True)
while time.monotonic() < until:
    pass
"""
_CPU_SECONDS = 0.05
# Whatever else the machine does adds to what is found, and takes nothing away.
_TRIES = 8
with_schedstat = pytest.mark.skipif(
    not Path(clock._SCHEDSTAT).exists(),
    reason="this system doesn't say how long a thread is queued",
)


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """Others compute on each CPU."""
    burners = [
        subprocess.Popen([sys.executable, "-c", BURNER], stdout=subprocess.PIPE)
        for _ in range(BURNERS_PER_CPU * usable_cpus())
    ]
    for burner in burners:
        assert burner.stdout is not None
        burner.stdout.readline()
    yield
    for burner in burners:
        burner.kill()
        burner.communicate()


def spin() -> None:
    until = time.thread_time() + _CPU_SECONDS
    while time.thread_time() < until:
        pass


def sleep() -> None:
    time.sleep(_CPU_SECONDS)


def tries(work: Callable[[], None]) -> list[Spent]:
    """What it takes, several times."""
    found = []
    for _ in range(_TRIES):
        started = Spent.now()
        work()
        found.append(started.until_now())
    return found


def waiting(found: list[Spent]) -> list[float]:
    """The shares of its own time that it has waited."""
    return [1 - spent.busy_seconds / spent.own_seconds for spent in found]


@pytest.mark.serial
@pytest.mark.full
@with_schedstat
def test_clock_leaves_out_the_queue_for_a_cpu(busy_machine):
    found = tries(spin)
    assert max(spent.seconds for spent in found) > 2 * _CPU_SECONDS
    assert min(spent.own_seconds for spent in found) < 1.5 * _CPU_SECONDS
    assert any(spent.noisy for spent in found)


@pytest.mark.serial
@pytest.mark.full
@pytest.mark.parametrize("told", [True, False])
def test_clock_of_work_that_computes_and_that_sleeps(busy_machine, monkeypatch, told):
    """Also where nobody says how long a thread is queued."""
    if not told:
        monkeypatch.setattr(clock, "_SCHEDSTAT", "/nowhere")
    assert min(waiting(tries(spin))) < 0.25
    assert max(waiting(tries(sleep))) > 0.75
