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

from dataclasses import dataclass
from typing import Any

from adapters.planning.published import THROUGHPUTS
from adapters.planning.requirement import MIB, Workload, required

_EXAMPLE_BYTES = 64 << 10
# Size of ImageNet's training set; no figure here depends on it.
_EXAMPLES = 1_281_167
_PRINTED_SECONDS = 0.087
_NFS_IOPS = (640.0, 1280.0)
_SMALL_FILE_IOPS = (25_600.0, 51_200.0)
_INFERRED_SECONDS = (0.1, 0.05)
_CUT_OFF = "t was printed cut off"
_INFERRED = "n, t and GPUs are inferred from the figures"


@dataclass(frozen=True)
class Comparison:
    """Published figure, and its formula's result.

    Args:
        subject: Model and device, or storage, of the figure.
        formula: Formula in words.
        computed: One value, or the ends of a range.
        printed: Published value or range; empty if it isn't known.
        unit: Unit of both.
        decimals: Number of decimals that were printed.
        note: Reason for a difference, or a deviation from the publication.
    """

    subject: str
    formula: str
    computed: tuple[float, ...]
    printed: tuple[float, ...]
    unit: str
    decimals: int = 0
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
    small, large = THROUGHPUTS
    exact_seconds = small.batch_size / small.examples_per_second
    whole, cut, four_whole, four_cut = (
        required(_workload(small.batch_size, seconds, gpus))
        for gpus in (1, 4)
        for seconds in (exact_seconds, _PRINTED_SECONDS)
    )
    of_large = _workload(large.batch_size, large.batch_size / large.examples_per_second)
    of_one, of_many = (
        tuple(required(_workload(64, seconds, gpus)).file_iops for seconds in _INFERRED_SECONDS)
        for gpus in (1, 40)
    )
    of_gpu, of_gpu_cut = (whole.gpu_examples_per_second,), (cut.gpu_examples_per_second,)
    of_152 = (required(of_large).gpu_examples_per_second,)
    of_four, of_four_cut = (four_whole.file_iops,), (four_cut.file_iops,)
    four_mib = (four_cut.bytes_per_second / MIB,)
    small_gb = tuple(rate / 1000 for rate in _bandwidth(_SMALL_FILE_IOPS))
    one, four = "ResNet-50, V100, n 128", "ResNet-50, 4 x V100, n 128"
    many = "40 GPUs x n / t, n 64, t 0.1 to 0.05 s"
    shared = "n / t, n 64, t 0.1 to 0.05 s"
    own_figure = "the printed bandwidth doesn't follow from the IOPS"
    rows: list[tuple[Any, ...]] = [
        (one, "t = n / rate", (whole.batch_seconds,), (0.087,), "s", 3),
        (one, "n / t", of_gpu, (1457,), "images/s"),
        (one, "n / t, t as printed", of_gpu_cut, (1457,), "images/s", 0, _CUT_OFF),
        ("ResNet-152, V100, n 64", "n / t", of_152, (730,), "images/s"),
        (four, "GPUs x n / t, t as printed", of_four_cut, (5885,), "IOPS"),
        (four, "GPUs x n / t", of_four, (5885,), "IOPS", 0, _CUT_OFF),
        (four, "IOPS x 64 KB", four_mib, (367,), "MB/s"),
        ("small files", many, of_many, _SMALL_FILE_IOPS, "IOPS", 0, _INFERRED),
        ("small files", "IOPS x 64 KB", small_gb, (1.6, 3.2), "GB/s", 1),
        ("shared NFS", shared, of_one, _NFS_IOPS, "IOPS", 0, _INFERRED),
        ("shared NFS", "IOPS x 64 KB", _bandwidth(_NFS_IOPS), (), "MB/s", 0, own_figure),
    ]
    return [Comparison(*row) for row in rows]


def _workload(batch_size: int, batch_seconds: float, gpus: int = 1) -> Workload:
    return Workload(batch_size, batch_seconds, _EXAMPLE_BYTES, _EXAMPLES, gpus)


def _bandwidth(iops: tuple[float, ...]) -> tuple[float, ...]:
    """Compute MiB a second for reads of one example each."""
    return tuple(rate * _EXAMPLE_BYTES / MIB for rate in iops)
