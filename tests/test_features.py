"""What speed depends on, as `adapters doctor` and the benchmarks' results name it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters import machine
from adapters.cli.main import main

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
def test_features_are_named_in_a_line(pretend, kernel, flags, gpus, said):
    pretend(kernel, flags, *gpus)
    assert str(machine.found_features()) == said


def test_without_the_kernel_vbmi_is_worth_nothing(pretend):
    pretend(None, FLAGS)
    assert machine.found_features().names == frozenset()


def test_vectors_that_are_switched_off_are_not_there(pretend, monkeypatch):
    pretend(object(), FLAGS)
    monkeypatch.setenv("ADAPTERS_VECTORS", "0")
    assert machine.found_features().names == {"native kernel"}


def test_the_doctor_prints_them_first(pretend, monkeypatch, capsys):
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
def test_the_machine_names_its_gpus(nvidia_smi: Path, script: str, names: tuple[str]) -> None:
    nvidia_smi.write_text("#!/bin/sh\n" + script)
    nvidia_smi.chmod(0o755)
    assert machine.gpu_names() == names


def test_without_a_driver_there_is_no_gpu(nvidia_smi: Path) -> None:
    assert machine.gpu_names() == ()
