"""Published examples, recomputed and compared with the printed figures.

They come from the literature on storage for deep learning on V100s: a mini-batch of n examples of
64 KB each, a step of t seconds, and storage that must give n / t reads a second to each GPU. About
the printed figures:

- t of ResNet-50 is 128 / 1,457 = 0.0879 s, printed as 0.087: cut off, not rounded. 5,885 IOPS for
  four GPUs follows from the printed t; the exact t gives 5,828.
- "MB/s" are 2^20 bytes, and "GB/s" are 1,000 of these.
- The IOPS of the shared NFS and of small files were printed without n and t. n 64 and t 0.1 to
  0.05 s give them, with 40 GPUs for small files; these are marked as inferred.
- The bandwidth printed for the shared NFS doesn't follow from its IOPS and 64 KB. The formula's is
  shown; the printed one is left out, for want of the original.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from adapters.planning.published import THROUGHPUTS
from adapters.planning.requirement import MIB, Workload

_EXAMPLE_BYTES = 64 << 10
# Size of ImageNet's training set; no figure here depends on it.
_EXAMPLES = 1_281_167
_PRINTED_SECONDS = 0.087
_INFERRED_SECONDS = (0.1, 0.05)
_CUT_OFF = "t was printed cut off"
_INFERRED = "n, t and GPUs are inferred from the figures"


class Comparison(NamedTuple):
    """Published figure or range, and its formula's result."""

    subject: str
    formula: str
    computed: tuple[float, ...]
    printed: tuple[float, ...]
    """Empty if it isn't known."""
    unit: str
    decimals: int = 0
    """Number of decimals that were printed."""
    note: str = ""

    @property
    def agrees(self) -> bool:
        """True if they differ by less than one in the last printed digit, rounded or cut off."""
        return bool(self.printed) and all(
            abs(computed - printed) < 10**-self.decimals
            for computed, printed in zip(self.computed, self.printed, strict=True)
        )


def published_examples() -> list[Comparison]:
    """List the published examples."""

    def workload(batch_size: int, seconds: float, gpus: int = 1) -> Workload:
        return Workload(batch_size, seconds, _EXAMPLE_BYTES, _EXAMPLES, gpus)

    def rate(*workloads: Workload) -> tuple[float, ...]:
        return tuple(each.examples_per_second for each in workloads)

    def bandwidth(*workloads: Workload) -> tuple[float, ...]:
        return tuple(each.bytes_per_second / MIB for each in workloads)

    small, large = (workload(n, n / rate_of_n) for n, rate_of_n in THROUGHPUTS.values())
    cut = workload(small.batch_size, _PRINTED_SECONDS)
    four_whole, four_cut = replace(small, gpus=4), replace(cut, gpus=4)
    nfs = [workload(64, seconds) for seconds in _INFERRED_SECONDS]
    files = [workload(64, seconds, 40) for seconds in _INFERRED_SECONDS]
    files_gb = tuple(each / 1000 for each in bandwidth(*files))
    one, four = "ResNet-50, V100, n 128", "ResNet-50, 4 x V100, n 128"
    many = "40 GPUs x n / t, n 64, t 0.1 to 0.05 s"
    shared = "n / t, n 64, t 0.1 to 0.05 s"
    unknown = "the printed bandwidth doesn't follow from the IOPS"
    rows: list[tuple[Any, ...]] = [
        (one, "t = n / rate", (small.batch_seconds,), (0.087,), "s", 3),
        (one, "n / t", rate(small), (1457,), "images/s"),
        (one, "n / t, t as printed", rate(cut), (1457,), "images/s", 0, _CUT_OFF),
        ("ResNet-152, V100, n 64", "n / t", rate(large), (730,), "images/s"),
        (four, "GPUs x n / t, t as printed", rate(four_cut), (5885,), "IOPS"),
        (four, "GPUs x n / t", rate(four_whole), (5885,), "IOPS", 0, _CUT_OFF),
        (four, "IOPS x 64 KB", bandwidth(four_cut), (367,), "MB/s"),
        ("small files", many, rate(*files), (25_600, 51_200), "IOPS", 0, _INFERRED),
        ("small files", "IOPS x 64 KB", files_gb, (1.6, 3.2), "GB/s", 1),
        ("shared NFS", shared, rate(*nfs), (640, 1280), "IOPS", 0, _INFERRED),
        ("shared NFS", "IOPS x 64 KB", bandwidth(*nfs), (), "MB/s", 0, unknown),
    ]
    return [Comparison(*row) for row in rows]
