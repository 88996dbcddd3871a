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
# See ``suggested_shard_bytes``.
LEAST_SHARD_BYTES, MOST_SHARD_BYTES = 64 * MIB, 1024 * MIB
SHARDS_PER_READER = 4
# Percentage of the mini-batches that must arrive within t.
ENOUGH_PERCENT = 99
# A smaller excess over a whole number of workers is the rounding of n / t, not another worker.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Workload:
    """Training to plan for.

    Args:
        batch_size: n, the examples of a mini-batch of one GPU.
        batch_seconds: t, the time that a GPU takes for it.
        example_bytes: Bytes of one example, as stored.
        examples: Number of examples in the data set.
        gpus: GPUs of one experiment.
        experiments: Number of concurrent experiments on the same data set.
        memory_bytes: Memory of the machine that reads; None ignores the page cache.
        core_examples_per_second: Examples that one core prepares; None ignores the workers.

    Raises:
        ValueError: A value isn't positive and finite.
    """

    batch_size: int
    batch_seconds: float
    example_bytes: int
    examples: int
    gpus: int = 1
    experiments: int = 1
    memory_bytes: int | None = None
    core_examples_per_second: float | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "example_bytes", "examples", "gpus", "experiments"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)!r}")
        for name in ("batch_seconds", "memory_bytes", "core_examples_per_second"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be > 0 and finite, got {value!r}")


@dataclass(frozen=True)
class Requirement:
    """Requirements of a ``Workload``.

    Args:
        batch_seconds: t, within which the next mini-batch must arrive.
        gpu_examples_per_second: n / t.
        examples_per_second: Rate of all GPUs of all experiments.
        bytes_per_second: Bytes of these, as stored.
        file_iops: Reads a second with a file for each example.
        packed_iops: Reads a second of packed records, each of ``packed_read_bytes``.
        packed_read_bytes: 1 MiB, or an example, if that is larger.
        dataset_bytes: Bytes of all examples.
        epoch_seconds: Time of one pass of one experiment over them.
        fits_memory: True if the page cache keeps all examples after the first epoch; None if the
            memory isn't known.
        shard_bytes: See ``suggested_shard_bytes``.
        shards: Number of files of that size.
        workers: Cores that prepare the examples of all GPUs; None if their rate isn't known.
    """

    batch_seconds: float
    gpu_examples_per_second: float
    examples_per_second: float
    bytes_per_second: float
    file_iops: float
    packed_iops: float
    packed_read_bytes: int
    dataset_bytes: int
    epoch_seconds: float
    fits_memory: bool | None
    shard_bytes: int
    shards: int
    workers: int | None


def required(workload: Workload) -> Requirement:
    """Compute the storage, memory and workers with which the GPUs don't wait.

    Example:
        >>> from adapters.planning import Workload, required
        >>> need = required(Workload(128, 0.087, 64 << 10, 1_281_167, gpus=4))
        >>> round(need.file_iops), int(need.bytes_per_second) >> 20
        (5885, 367)
    """
    of_gpu = workload.batch_size / workload.batch_seconds
    of_all = of_gpu * workload.gpus * workload.experiments
    bytes_per_second = of_all * workload.example_bytes
    dataset_bytes = workload.examples * workload.example_bytes
    read_bytes = max(READ_BYTES, workload.example_bytes)
    shard_bytes = suggested_shard_bytes(dataset_bytes, workload.gpus)
    memory, rate = workload.memory_bytes, workload.core_examples_per_second
    return Requirement(
        batch_seconds=workload.batch_seconds,
        gpu_examples_per_second=of_gpu,
        examples_per_second=of_all,
        bytes_per_second=bytes_per_second,
        file_iops=of_all,
        packed_iops=bytes_per_second / read_bytes,
        packed_read_bytes=read_bytes,
        dataset_bytes=dataset_bytes,
        epoch_seconds=workload.examples / (of_gpu * workload.gpus),
        fits_memory=None if memory is None else dataset_bytes <= CACHE_SHARE * memory,
        shard_bytes=shard_bytes,
        shards=-(-dataset_bytes // shard_bytes),
        workers=None if rate is None else math.ceil(of_all / rate * (1 - _ROUNDING)),
    )


def suggested_shard_bytes(dataset_bytes: int, readers: int) -> int:
    """Suggest a size for record files: 64 MiB, or twice that, and so on, up to 1 GiB.

    The size is the largest one of which each reader, a GPU's process of one experiment, has at
    least 4. Then the order of the shards can be shuffled, no reader waits for another one's file,
    and their shares differ little. It is at least 64 MiB, even with fewer than 4 for each: a disk
    that reads 150 MB/s seeks for 2% of the time that it takes to read that many. It is at most 1
    GiB, as a shard is copied, checked and repaired as a whole.

    Args:
        dataset_bytes: Bytes of all examples.
        readers: Number of readers of different parts of the data set.
    """
    shard_bytes = LEAST_SHARD_BYTES
    while (
        shard_bytes < MOST_SHARD_BYTES
        and dataset_bytes >= 2 * shard_bytes * readers * SHARDS_PER_READER
    ):
        shard_bytes *= 2
    return shard_bytes
