from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness.machine import gpu_names


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the driver's program would be; nothing else is found."""
    monkeypatch.setenv("PATH", str(tmp_path))
    gpu_names.cache_clear()
    yield tmp_path / "nvidia-smi"
    gpu_names.cache_clear()


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
    assert gpu_names() == names


def test_without_a_driver_there_is_no_gpu(nvidia_smi: Path) -> None:
    assert gpu_names() == ()
