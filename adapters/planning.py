"""Planning of storage and workers for training: arithmetic before anything is bought or copied.

A GPU takes t seconds for a mini-batch of n examples, so it needs n / t examples a second, and the
next mini-batch within t. GPUs and concurrent experiments multiply that. With one file for each
example, an example costs a read. Packed records that are read in stored order cost one read of
1 MiB for as many as fit into it. Records read in random order, as by ``shuffle=True`` of a source
that the page cache doesn't hold, cost a read each again.

Sizes are in bytes, times in seconds, and KB, MB and GB are powers of 1,024 throughout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

MIB = 1 << 20
_LEAST_SHARD_BYTES, _MOST_SHARD_BYTES = 64 * MIB, 1024 * MIB
_SHARDS_PER_READER = 4


def shard_bytes(dataset_bytes: int, readers: int) -> int:
    """Return a size for record files: 64 MiB, or twice that, and so on, up to 1 GiB.

    The size is the largest one of which each reader, a GPU's process of one experiment, has at
    least 4. Then the order of the shards can be shuffled, no reader waits for another one's file,
    and their shares differ little. It is at least 64 MiB, even with fewer than 4 for each: a disk
    that reads 150 MB/s seeks for 2% of the time that it takes to read that many. It is at most
    1 GiB, as a shard is copied, checked and repaired as a whole.
    """
    size = _LEAST_SHARD_BYTES
    while size < _MOST_SHARD_BYTES and dataset_bytes >= 2 * size * readers * _SHARDS_PER_READER:
        size *= 2
    return size


# --- published figures: devices, models, measured throughputs, kinds of storage ---

# Each table names its source. Figures marked "order of magnitude" are common knowledge about such
# hardware, not a measurement; check a plan that depends on them against the real hardware.
#
# The published examples come from the literature on storage for deep learning on V100s: a
# mini-batch of n examples of 64 KB each, a step of t seconds, and storage that must give n / t
# reads a second to each GPU. Their "MB/s" are 2^20 bytes, and "GB/s" are 1,000 of these.

_ROUGHLY = "order of magnitude"
_PUBLISHED = "published example"


class Storage(NamedTuple):
    """Kind of storage: small random reads, and bytes of large reads, a second, usual and best."""

    title: str
    iops: tuple[float, float]
    bytes_per_second: tuple[float, float]
    source: str

    def verdict(self, iops: float, bytes_per_second: float) -> str:
        """``"fits"`` if usual rates are enough, ``"at best"`` if the best are, or "too slow"."""
        for place, verdict in enumerate(("fits", "at best")):
            if iops <= self.iops[place] and bytes_per_second <= self.bytes_per_second[place]:
                return verdict
        return "too slow"


# A multiply and an add are two operations, and the backward pass costs about twice the forward one.
OPERATIONS_PER_MULTIPLY_ADD = 2 * 3
# Between the 29% and the 40% of a V100's fp16 peak that the two published throughputs reach.
UTILISATION = 0.35

# Dense peak in fp16 operations a second, by NVIDIA's data sheets: that of tensor cores, but for the
# P100.
DEVICES: dict[str, tuple[str, float]] = {
    "p100": ("Tesla P100 (SXM2)", 21.2e12),
    "v100": ("Tesla V100 (SXM2)", 125e12),
    "t4": ("T4", 65e12),
    "a10": ("A10", 125e12),
    "l4": ("L4", 121e12),
    "a100": ("A100 (SXM)", 312e12),
    "h100": ("H100 (SXM)", 989e12),
    "h200": ("H200 (SXM)", 989e12),
}

# Multiply-adds of a forward pass for one example, by torchvision's tables of pretrained weights
# ("GFLOPS"), at 224x224, and Inception v3 at 299x299.
MODELS: dict[str, tuple[str, float]] = {
    "alexnet": ("AlexNet", 0.71e9),
    "efficientnetb0": ("EfficientNet-B0", 0.39e9),
    "inceptionv3": ("Inception v3", 5.71e9),
    "mobilenetv2": ("MobileNetV2", 0.30e9),
    "resnet18": ("ResNet-18", 1.81e9),
    "resnet34": ("ResNet-34", 3.66e9),
    "resnet50": ("ResNet-50", 4.09e9),
    "resnet101": ("ResNet-101", 7.80e9),
    "resnet152": ("ResNet-152", 11.51e9),
    "vgg16": ("VGG-16", 15.47e9),
    "vitb16": ("ViT-B/16", 17.56e9),
}

# Batch size, and examples a second, of a model on a device: the published examples of storage
# requirements. They are measured: the two networks' multiply-adds have a ratio
# of 2.8, their rates one of 2.0.
THROUGHPUTS: dict[tuple[str, str], tuple[int, float]] = {
    ("resnet50", "v100"): (128, 1457),
    ("resnet152", "v100"): (64, 730),
}

# The IOPS of the shared NFS and of the small files, and the latter's bandwidth, are those of the
# published examples. An NFS server's bandwidth for large reads is that of its network, 1 to 10
# Gbit/s. 5,500 is what Amazon S3 documents as GETs a second for each prefix.
STORAGE: tuple[Storage, ...] = (
    Storage("hard disk", (75, 200), (100e6, 250e6), _ROUGHLY),
    Storage("NFS, shared", (640, 1280), (100e6, 1.2e9), f"IOPS: {_PUBLISHED}; else {_ROUGHLY}"),
    Storage("object storage", (500, 5500), (100e6, 5e9), f"{_ROUGHLY}; 5,500 GETs: Amazon S3"),
    Storage("SATA SSD", (10_000, 90_000), (300e6, 550e6), _ROUGHLY),
    Storage(
        "file system for small files", (25_600, 51_200), (1.6e3 * MIB, 3.2e3 * MIB), _PUBLISHED
    ),
    Storage("NVMe SSD", (100_000, 1_000_000), (2e9, 7e9), _ROUGHLY),
)


def _key_of(kind: str, name: str | None, table: Mapping[str, Any]) -> str | None:
    """Find the key of a table, ignoring case and punctuation; None for None."""
    if name is None:
        return None
    key = "".join(filter(str.isalnum, name.lower()))
    if key not in table:
        raise ValueError(
            f"{kind} must be one of {', '.join(table)}, got {name!r}; for another one, give the "
            f"time of a step as you measured it, and no {kind}"
        )
    return key


def step_of(
    batch_size: int,
    *,
    model: str | None = None,
    device: str | None = None,
    step_seconds: float | None = None,
) -> tuple[float, str]:
    """Return the best known time t of a step of ``batch_size`` examples, and the figure's basis.

    This is the measured time, if it is given. Else it is from the published throughput of the model
    on the device. Without one, it is estimated: six operations for each multiply-add of the forward
    pass, at a share (0.35) of the device's peak in fp16. ``ValueError`` for an unknown name, or if
    there is too little to go by.
    """
    # Unknown names are refused even if the measured time makes them unnecessary.
    model_key, device_key = _key_of("model", model, MODELS), _key_of("device", device, DEVICES)
    if step_seconds is not None:
        return step_seconds, "measured, as given"
    if model_key is None or device_key is None:
        raise ValueError(
            f"--model and --device, or --step-ms must be given, got model {model!r}, device "
            f"{device!r}"
        )
    (network, multiply_adds), (hardware, peak_flops) = MODELS[model_key], DEVICES[device_key]
    if (published := THROUGHPUTS.get((model_key, device_key))) is not None:
        size, rate = published
        basis = f"published: {network} on {hardware}, {rate:,.0f} examples/s at n {size}"
        if batch_size != size:
            basis += f", taken to be the same at n {batch_size}"
        return batch_size / rate, basis
    operations = OPERATIONS_PER_MULTIPLY_ADD * multiply_adds
    return (
        batch_size * operations / (peak_flops * UTILISATION),
        f"estimated: {operations / 1e9:,.1f} GFLOP an example, {UTILISATION:.0%} of the "
        f"{peak_flops / 1e12:,.1f} TFLOP/s of {hardware} in fp16",
    )


# --- the published examples ---


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
    (n, rate), (_, large_rate) = THROUGHPUTS.values()
    printed_t, inferred_t = 0.087, (0.1, 0.05)
    nfs = tuple(64 / t for t in inferred_t)
    files = tuple(40 * each for each in nfs)

    def mib(*rates: float) -> tuple[float, ...]:
        return tuple(each * (64 << 10) / MIB for each in rates)

    files_gb = tuple(each / 1000 for each in mib(*files))
    one, four = "ResNet-50, V100, n 128", "ResNet-50, 4 x V100, n 128"
    shared = "n / t, n 64, t 0.1 to 0.05 s"
    cut_off, inferred = "t was printed cut off", "n, t and GPUs are inferred from the figures"
    unknown = "the printed bandwidth doesn't follow from the IOPS"
    rows: list[tuple[Any, ...]] = [
        (one, "t = n / rate", (n / rate,), (0.087,), "s", 3),
        (one, "n / t", (rate,), (1457,), "images/s"),
        (one, "n / t, t as printed", (n / printed_t,), (1457,), "images/s", 0, cut_off),
        ("ResNet-152, V100, n 64", "n / t", (large_rate,), (730,), "images/s"),
        (four, "GPUs x n / t, t as printed", (4 * n / printed_t,), (5885,), "IOPS"),
        (four, "GPUs x n / t", (4 * rate,), (5885,), "IOPS", 0, cut_off),
        (four, "IOPS x 64 KB", mib(4 * n / printed_t), (367,), "MB/s"),
        ("small files", f"40 GPUs x {shared}", files, (25_600, 51_200), "IOPS", 0, inferred),
        ("small files", "IOPS x 64 KB", files_gb, (1.6, 3.2), "GB/s", 1),
        ("shared NFS", shared, nfs, (640, 1280), "IOPS", 0, inferred),
        ("shared NFS", "IOPS x 64 KB", mib(*nfs), (), "MB/s", 0, unknown),
    ]
    return [Comparison(*row) for row in rows]
