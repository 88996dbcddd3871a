from __future__ import annotations

import threading

import pytest

from benchmarks.utilisation import GpuUtilisation, parse_percent


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
