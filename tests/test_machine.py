"""What the machine has: CPUs that may be used, features that speed depends on, time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters import clock, cpus, machine
from adapters.cli.main import main
from adapters.clock import Spent
from adapters.cpus import usable_cpus

VERSION_1 = "7:memory:/a\n4:cpu,cpuacct:/a\n0::/a"
QUOTA, PERIOD = "cpu/a/cpu.cfs_quota_us", "cpu/a/cpu.cfs_period_us"


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Control groups of a test's own, on a machine of 8 CPUs."""
    monkeypatch.setattr(cpus, "_GROUPS", tmp_path)
    monkeypatch.setattr(cpus, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    return tmp_path


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, 8),
        ({"own": "0::/a/b", "a/b/cpu.max": "max 100000"}, 8),
        ({"own": "0::/a/b", "a/b/cpu.max": "300000 100000"}, 3),
        ({"own": "0::/a/b", "a/b/cpu.max": "250000 100000"}, 3),  # Part of a CPU counts as one.
        ({"own": "0::/a/b", "a/b/cpu.max": "1600000 100000"}, 8),
        ({"own": "0::/a/b", "a/b/cpu.max": "nonsense"}, 8),
        ({"own": "0::/a/b", "a/cpu.max": "200000 100000", "a/b/cpu.max": "400000 100000"}, 2),
        ({"own": "0::/docker/0123", "cpu.max": "400000 100000"}, 4),
        ({"own": VERSION_1, QUOTA: "-1", PERIOD: "100000"}, 8),
        ({"own": VERSION_1, QUOTA: "150000", PERIOD: "100000"}, 2),
        ({"own": VERSION_1, QUOTA: "1", PERIOD: "100000"}, 1),
    ],
)
def test_cpus_of_a_quota(groups, files, count):
    for name, text in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text + "\n")
    assert usable_cpus() == count


def test_cpus_of_an_affinity(groups, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert usable_cpus() == 1


def test_cpus_outside_of_the_groups(groups, monkeypatch):
    monkeypatch.setattr(cpus, "_GROUPS", groups / "inside")
    (groups / "own").write_text("0::/a")
    (groups / "cpu.max").write_text("100000 100000")
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


def test_clock_leaves_out_the_queue_for_a_cpu(tmp_path, monkeypatch):
    told = tmp_path / "schedstat"
    monkeypatch.setattr(clock, "_SCHEDSTAT", str(told))
    told.write_text("7000000 1000000 3\n")
    began = Spent.now()
    time.sleep(0.1)
    told.write_text("8000000 91000000 4\n")
    spent = began.until_now()
    assert 0.03 < spent.queued_seconds <= 0.09
    assert spent.own_seconds == spent.seconds - spent.queued_seconds
    assert spent.noisy


def test_queue_behind_the_work_is_not_its_own(monkeypatch):
    """Trials told of batches that took 1e-06 ms."""
    queued = iter([0.0, 1.0])

    def asked() -> float:
        time.sleep(0.02)
        return next(queued) * 0.02

    monkeypatch.setattr("adapters.clock._queued_seconds", asked)
    began = Spent.now()
    spent = began.until_now()  # Others ran while it asked, but not while it worked.
    assert spent.queued_seconds < 0.001 < 0.019 < spent.own_seconds
