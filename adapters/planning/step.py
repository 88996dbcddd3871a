"""Step time t, which a device takes for a mini-batch: measured, published or estimated."""

from __future__ import annotations

from typing import NamedTuple

from adapters.planning.published import DEVICES, MODELS, THROUGHPUTS, row_of

# A multiply and an add are two operations, and the backward pass costs about twice the forward one.
OPERATIONS_PER_MULTIPLY_ADD = 2 * 3
# Between the 29% and the 40% of a V100's fp16 peak that the two published throughputs reach.
UTILISATION = 0.35


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
    model_key, network = (None, None) if model is None else row_of("model", model, MODELS)
    device_key, hardware = (None, None) if device is None else row_of("device", device, DEVICES)
    devices = list(DEVICES.values()) if hardware is None else [hardware]
    known = dict.fromkeys(name for each in devices for name in each.peak_flops)
    if precision is not None and precision not in known:
        where = "" if hardware is None else f" on {hardware.title}"
        raise ValueError(f"precision must be one of {', '.join(known)}{where}, got {precision!r}")
    if step_seconds is not None:
        return Step(step_seconds, "measured, as given")
    is_published = multiply_adds is None
    if multiply_adds is None and network is not None:
        multiply_adds = network.multiply_adds
    if hardware is None or multiply_adds is None:
        raise ValueError(
            "--model and --device, or --flops and --device, or --step-ms must be given, got "
            f"model {model!r}, device {device!r}"
        )
    if is_published and network is not None and precision is None and utilisation is None:
        for row in THROUGHPUTS:
            if (row.model, row.device) == (model_key, device_key):
                basis = (
                    f"published: {network.title} on {hardware.title}, "
                    f"{row.examples_per_second:,.0f} examples/s at n {row.batch_size}"
                )
                if batch_size != row.batch_size:
                    basis += f", taken to be the same at n {batch_size}"
                return Step(batch_size / row.examples_per_second, basis)
    precision = precision or list(hardware.peak_flops)[-1]
    share = UTILISATION if utilisation is None else utilisation
    peak, operations = hardware.peak_flops[precision], OPERATIONS_PER_MULTIPLY_ADD * multiply_adds
    return Step(
        batch_size * operations / (peak * share),
        f"estimated: {operations / 1e9:,.1f} GFLOP an example, "
        f"{share:.0%} of the {peak / 1e12:,.1f} TFLOP/s of {hardware.title} in {precision}",
    )
