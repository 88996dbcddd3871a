"""How busy the GPU is, as NVML says: the share of its sampling period in which a kernel ran."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import threading
from collections.abc import Callable

INTERVAL_SECONDS = 0.2  # NVML's own period is 1/6 s to 1 s, depending on the GPU.
QUERY = ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


class GpuUtilisation:
    """Samples the utilisation of the GPU in a thread, from `__enter__` to `__exit__`.

    Attributes:
        samples: Percentages; none where neither pynvml nor nvidia-smi can tell.
    """

    def __init__(self, read: Callable[[], float | None] | None = None) -> None:
        self._read = read or find_reader()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="gpu-utilisation", daemon=True)
        self.samples: list[float] = []

    def __enter__(self) -> GpuUtilisation:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def share(self) -> float | None:
        """The mean as a share of 1, or None without samples."""
        return statistics.mean(self.samples) / 100 if self.samples else None

    def _sample(self) -> None:
        while True:
            percent = self._read()
            if percent is not None:
                self.samples.append(percent)
            if self._ended.wait(INTERVAL_SECONDS):
                return


def find_reader() -> Callable[[], float | None]:
    """What reads the percentage of the first visible GPU: pynvml, nvidia-smi or nothing."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip() or "0"
    reader = _nvml_reader(visible)
    if reader is not None:
        return reader
    if shutil.which("nvidia-smi") is None:
        return lambda: None
    return lambda: _ask_nvidia_smi(visible)


def _nvml_reader(gpu: str) -> Callable[[], float | None] | None:
    """Through pynvml; None where there is none, or it finds no driver's library or no such GPU."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        if gpu.isdigit():
            handle = pynvml.nvmlDeviceGetHandleByIndex(int(gpu))
        else:
            handle = pynvml.nvmlDeviceGetHandleByUUID(gpu)
    except pynvml.NVMLError:
        return None

    def read() -> float | None:
        try:
            return float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except pynvml.NVMLError:  # As of a part of a GPU.
            return None

    return read


def parse_percent(output: str) -> float | None:
    """What nvidia-smi wrote, as a number; None where it can't tell, as with a part of a GPU."""
    try:
        return float(output.strip())
    except ValueError:
        return None


def _ask_nvidia_smi(gpu: str) -> float | None:
    ended = subprocess.run(
        ["nvidia-smi", f"--id={gpu}", *QUERY], capture_output=True, text=True, check=False
    )
    return parse_percent(ended.stdout) if ended.returncode == 0 else None
