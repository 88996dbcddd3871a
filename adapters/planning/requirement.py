"""Requirements of a training run: pure arithmetic, nothing is looked up.

A GPU takes t seconds for a mini-batch of n examples, so it needs n / t examples a second, and the
next mini-batch within t. GPUs and concurrent experiments multiply that. With one file for each
example, an example costs a read. Packed records that are read in stored order cost one read of
1 MiB for as many as fit into it. Records read in random order, as by ``shuffle=True`` of a source
that the page cache doesn't hold, cost a read each again.

Sizes are in bytes, times in seconds, and KB, MB and GB are powers of 1,024 throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MIB = 1 << 20
# One read of many examples: the most that network file systems take, and enough for a disk.
READ_BYTES = MIB
# Fraction of memory that the page cache can be counted on to keep; a rule of thumb. The rest is for
# the program, its batches and the system.
CACHE_SHARE = 0.75
# See ``Workload.shard_bytes``.
LEAST_SHARD_BYTES, MOST_SHARD_BYTES = 64 * MIB, 1024 * MIB
SHARDS_PER_READER = 4
# A smaller excess over a whole number of workers is the rounding of n / t, not another worker.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Workload:
    """Training to plan for, and what it requires so that the GPUs don't wait.

    Args:
        batch_size: n, the examples of a mini-batch of one GPU.
        batch_seconds: t, the time that a GPU takes for it.
        example_bytes: Bytes of one example, as stored.
        examples: Number of examples in the data set.
        gpus: GPUs of one experiment.
        experiments: Number of concurrent experiments on the same data set.
        memory_bytes: Memory of the machine that reads; None ignores the page cache.
        core_examples_per_second: Examples that one core prepares; None ignores the workers.

    Example:
        >>> from adapters.planning import Workload
        >>> four = Workload(128, 0.087, 64 << 10, 1_281_167, gpus=4)
        >>> round(four.examples_per_second), int(four.bytes_per_second) >> 20
        (5885, 367)
    """

    batch_size: int
    batch_seconds: float
    example_bytes: int
    examples: int
    gpus: int = 1
    experiments: int = 1
    memory_bytes: int | None = None
    core_examples_per_second: float | None = None

    @property
    def gpu_examples_per_second(self) -> float:
        """Rate of one GPU: n / t."""
        return self.batch_size / self.batch_seconds

    @property
    def examples_per_second(self) -> float:
        """Rate of all GPUs of all experiments: the reads a second with a file for each example."""
        return self.gpu_examples_per_second * self.gpus * self.experiments

    @property
    def bytes_per_second(self) -> float:
        """Bytes of these examples, as stored."""
        return self.examples_per_second * self.example_bytes

    @property
    def packed_read_bytes(self) -> int:
        """Bytes of a read of packed records: 1 MiB, or an example, if that is larger."""
        return max(READ_BYTES, self.example_bytes)

    @property
    def packed_iops(self) -> float:
        """Reads a second of packed records."""
        return self.bytes_per_second / self.packed_read_bytes

    @property
    def dataset_bytes(self) -> int:
        """Bytes of all examples."""
        return self.examples * self.example_bytes

    @property
    def epoch_seconds(self) -> float:
        """Time of one pass of one experiment over all examples."""
        return self.examples / (self.gpu_examples_per_second * self.gpus)

    @property
    def fits_memory(self) -> bool | None:
        """True if the page cache keeps all examples after the first epoch; None if unknown."""
        if self.memory_bytes is None:
            return None
        return self.dataset_bytes <= CACHE_SHARE * self.memory_bytes

    @property
    def shard_bytes(self) -> int:
        """Size for record files: 64 MiB, or twice that, and so on, up to 1 GiB.

        The size is the largest one of which each reader, a GPU's process of one experiment, has at
        least 4. Then the order of the shards can be shuffled, no reader waits for another one's
        file, and their shares differ little. It is at least 64 MiB, even with fewer than 4 for
        each: a disk that reads 150 MB/s seeks for 2% of the time that it takes to read that many.
        It is at most 1 GiB, as a shard is copied, checked and repaired as a whole.
        """
        size = LEAST_SHARD_BYTES
        while size < MOST_SHARD_BYTES and (
            self.dataset_bytes >= 2 * size * self.gpus * SHARDS_PER_READER
        ):
            size *= 2
        return size

    @property
    def shards(self) -> int:
        """Number of files of that size."""
        return -(-self.dataset_bytes // self.shard_bytes)

    @property
    def workers(self) -> int | None:
        """Cores that prepare the examples of all GPUs; None if their rate isn't known."""
        rate = self.core_examples_per_second
        if rate is None:
            return None
        return math.ceil(self.examples_per_second / rate * (1 - _ROUNDING))
