"""Published figures: devices, models, measured throughputs, kinds of storage; the time of a step.

Each table names its source. Figures marked "order of magnitude" are common knowledge about such
hardware, not a measurement; check a plan that depends on them against the real hardware.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

_Row = TypeVar("_Row")
_ROUGHLY = "order of magnitude"
_PUBLISHED = "published example"


class Device(NamedTuple):
    """Accelerator, with its dense peak in operations a second by precision, the fastest last."""

    title: str
    peak_flops: Mapping[str, float]


class Model(NamedTuple):
    """Network, with the multiply-adds of one forward pass for one example (papers: FLOPs)."""

    title: str
    multiply_adds: float


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

# NVIDIA's data sheets, without sparsity; fp16 and bf16 are those of tensor cores, but for the P100.
DEVICES: dict[str, Device] = {
    "p100": Device("Tesla P100 (SXM2)", {"fp32": 10.6e12, "fp16": 21.2e12}),
    "v100": Device("Tesla V100 (SXM2)", {"fp32": 15.7e12, "fp16": 125e12}),
    "t4": Device("T4", {"fp32": 8.1e12, "fp16": 65e12}),
    "a10": Device("A10", {"fp32": 31.2e12, "tf32": 62.5e12, "fp16": 125e12}),
    "l4": Device("L4", {"fp32": 30.3e12, "tf32": 60e12, "fp16": 121e12}),
    "a100": Device("A100 (SXM)", {"fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12}),
    "h100": Device("H100 (SXM)", {"fp32": 67e12, "tf32": 494e12, "fp16": 989e12}),
    "h200": Device("H200 (SXM)", {"fp32": 67e12, "tf32": 494e12, "fp16": 989e12}),
}

# torchvision's tables of pretrained weights ("GFLOPS", which are multiply-adds), at 224x224, and
# Inception v3 at 299x299.
MODELS: dict[str, Model] = {
    "alexnet": Model("AlexNet", 0.71e9),
    "efficientnetb0": Model("EfficientNet-B0", 0.39e9),
    "inceptionv3": Model("Inception v3", 5.71e9),
    "mobilenetv2": Model("MobileNetV2", 0.30e9),
    "resnet18": Model("ResNet-18", 1.81e9),
    "resnet34": Model("ResNet-34", 3.66e9),
    "resnet50": Model("ResNet-50", 4.09e9),
    "resnet101": Model("ResNet-101", 7.80e9),
    "resnet152": Model("ResNet-152", 11.51e9),
    "vgg16": Model("VGG-16", 15.47e9),
    "vitb16": Model("ViT-B/16", 17.56e9),
}

# Batch size, and examples a second, of a model on a device: the published examples of storage
# requirements, see ``examples.py``. They are measured: the two networks' multiply-adds have a ratio
# of 2.8, their rates one of 2.0.
THROUGHPUTS: dict[tuple[str | None, str | None], tuple[int, float]] = {
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
        "file system for small files",
        (25_600, 51_200),
        (25_600 * 65_536.0, 51_200 * 65_536.0),
        _PUBLISHED,
    ),
    Storage("NVMe SSD", (100_000, 1_000_000), (2e9, 7e9), _ROUGHLY),
)


def _row_of(kind: str, name: str, table: Mapping[str, _Row]) -> tuple[str, _Row]:
    """Find key and row of a table, ignoring case and punctuation."""
    key = "".join(filter(str.isalnum, name.lower()))
    if key not in table:
        raise ValueError(
            f"{kind} must be one of {', '.join(table)}, got {name!r}; for another one, give the "
            f"time of a step as you measured it, and no {kind}"
        )
    return key, table[key]


class Step(NamedTuple):
    """Time t of a training step, and the basis of the figure, to display."""

    batch_seconds: float
    basis: str


def step_of(
    batch_size: int,
    *,
    model: str | None = None,
    device: str | None = None,
    step_seconds: float | None = None,
    multiply_adds: float | None = None,
    precision: str | None = None,
    utilisation: float | None = None,
) -> Step:
    """Return the best known time of a step of ``batch_size`` examples.

    This is the measured time, if it is given. Else it is from the published throughput of the model
    on the device, unless one of the last three arguments asks for an estimate: six operations for
    each multiply-add of the forward pass, at a share (0.35) of the device's peak.

    Raises:
        ValueError: A model, device or precision is unknown, or there is too little to go by.
    """
    # Unknown names are refused even if the measured time makes them unnecessary.
    model_key, network = (None, None) if model is None else _row_of("model", model, MODELS)
    device_key, hardware = (None, None) if device is None else _row_of("device", device, DEVICES)
    devices = list(DEVICES.values()) if hardware is None else [hardware]
    known = dict.fromkeys(name for each in devices for name in each.peak_flops)
    if precision is not None and precision not in known:
        where = "" if hardware is None else f" on {hardware.title}"
        raise ValueError(f"precision must be one of {', '.join(known)}{where}, got {precision!r}")
    if step_seconds is not None:
        return Step(step_seconds, "measured, as given")
    published = None
    if multiply_adds is None and network is not None:
        multiply_adds = network.multiply_adds
        if precision is None and utilisation is None:
            published = THROUGHPUTS.get((model_key, device_key))
    if hardware is None or multiply_adds is None:
        raise ValueError(
            "--model and --device, or --flops and --device, or --step-ms must be given, got "
            f"model {model!r}, device {device!r}"
        )
    if published is not None and network is not None:
        published_size, rate = published
        basis = f"published: {network.title} on {hardware.title}, "
        basis += f"{rate:,.0f} examples/s at n {published_size}"
        if batch_size != published_size:
            basis += f", taken to be the same at n {batch_size}"
        return Step(batch_size / rate, basis)
    precision = precision or list(hardware.peak_flops)[-1]
    share = UTILISATION if utilisation is None else utilisation
    peak, operations = hardware.peak_flops[precision], OPERATIONS_PER_MULTIPLY_ADD * multiply_adds
    return Step(
        batch_size * operations / (peak * share),
        f"estimated: {operations / 1e9:,.1f} GFLOP an example, "
        f"{share:.0%} of the {peak / 1e12:,.1f} TFLOP/s of {hardware.title} in {precision}",
    )
