from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.harness.gpu_utilisation import GpuUtilisation, find_reader, parse_percent


@pytest.mark.parametrize(("output", "percent"), [("0\n", 0.0), ("97\n", 97.0), (" 100 \n", 100.0)])
def test_what_nvidia_smi_writes_of_a_gpu(output: str, percent: float) -> None:
    assert parse_percent(output) == percent


@pytest.mark.parametrize(
    "output", ["[N/A]\n", "[Not Supported]\n", "", "No devices were found\n", "[Unknown Error]\n"]
)
def test_what_nvidia_smi_writes_where_it_cannot_tell(output: str) -> None:
    assert parse_percent(output) is None


def test_the_share_is_the_mean_of_the_samples() -> None:
    enough, percents = threading.Event(), iter([50.0, None, 100.0])

    def read() -> float | None:
        percent = next(percents, None)
        if percent == 100:
            enough.set()
        return percent

    with GpuUtilisation(read) as gpu:
        assert enough.wait(20)
    assert (gpu.samples, gpu.share) == ([50.0, 100.0], 0.75)


def test_no_share_without_samples() -> None:
    with GpuUtilisation(lambda: None) as gpu:
        pass
    assert gpu.share is None


class NVMLError(Exception):
    pass


def fail(*arguments: object) -> Any:
    raise NVMLError


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """pynvml of a GPU that is half busy, and no nvidia-smi."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    made: Any = ModuleType("pynvml")
    made.NVMLError = NVMLError
    made.nvmlInit = lambda: None
    made.nvmlDeviceGetHandleByIndex = lambda index: index
    made.nvmlDeviceGetUtilizationRates = lambda handle: type("Rates", (), {"gpu": 50 + handle})
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def test_the_first_visible_gpu_is_asked(nvml: Any) -> None:
    assert find_reader()() == 51


@pytest.mark.parametrize(
    "broken", ["nvmlInit", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUtilizationRates"]
)
def test_pynvml_that_cannot_tell_ends_nothing(nvml: Any, broken: str) -> None:
    """There is no driver's library, or no such GPU, or it is a part of one."""
    setattr(nvml, broken, fail)
    assert find_reader()() is None


def test_nvidia_smi_is_asked_where_pynvml_finds_no_driver(nvml: Any, tmp_path: Path) -> None:
    nvml.nvmlInit = fail
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\n[ "$1" = --id=1 ] && echo 42\n')
    program.chmod(0o755)
    assert find_reader()() == 42
