"""Step time t, which a device takes for a mini-batch: measured, published or estimated."""

from __future__ import annotations

import math
from typing import NamedTuple

from adapters.planning.published import DEVICES, MODELS, THROUGHPUTS, device_of, model_of

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
    """Return the best known time of a step.

    This is the measured time, if it is given. Else it is from the published throughput of the model
    on the device, unless one of the last three arguments asks for an estimate. An estimate counts
    six operations for each multiply-add of the forward pass, at a share of the device's peak.

    Args:
        batch_size: n.
        model: Name such as ``"resnet50"``.
        device: Name such as ``"v100"``.
        step_seconds: Measured time.
        multiply_adds: Multiply-adds of one forward pass for one example, instead of the model's.
        precision: Precision of the device's peak; by default the fastest one.
        utilisation: Share of the peak that training reaches, 0 to 1; by default 0.35.

    Raises:
        ValueError: A model, device or precision is unknown, a number is out of range, or there is
            too little to go by.

    Example:
        >>> from adapters.planning import step_of
        >>> step_of(128, model="resnet50", device="v100").basis
        'published: ResNet-50 on Tesla V100 (SXM2), 1,457 examples/s at n 128'
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1, got {batch_size!r}")
    for name, value in (("step_seconds", step_seconds), ("multiply_adds", multiply_adds)):
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} must be > 0 and finite, got {value!r}")
    if utilisation is not None and not 0 < utilisation <= 1:
        raise ValueError(f"utilisation must be > 0 and <= 1, got {utilisation!r}")
    _check_names(model, device, precision)
    if step_seconds is not None:
        return Step(step_seconds, "measured, as given")
    if device is None or (model is None and multiply_adds is None):
        raise ValueError(
            "a device must be given with a model or its multiply-adds, or else the measured time "
            f"of a step, got model {model!r}, device {device!r}"
        )
    if model is not None and multiply_adds is None and precision is None and utilisation is None:
        found = _published(batch_size, model, device)
        if found is not None:
            return found
    return _estimated(batch_size, model, device, multiply_adds, precision, utilisation)


def _check_names(model: str | None, device: str | None, precision: str | None) -> None:
    """Refuse unknown names, even if the measured time of a step makes them unnecessary."""
    if model is not None:
        model_of(model)
    devices = list(DEVICES.values()) if device is None else [device_of(device)[1]]
    known = dict.fromkeys(name for each in devices for name in each.peak_flops)
    if precision is not None and precision not in known:
        where = "" if device is None else f" on {devices[0].title}"
        raise ValueError(f"precision must be one of {', '.join(known)}{where}, got {precision!r}")


def _published(batch_size: int, model: str, device: str) -> Step | None:
    keys = model_of(model)[0], device_of(device)[0]
    for row in THROUGHPUTS:
        if (row.model, row.device) == keys:
            where = f"{MODELS[row.model].title} on {DEVICES[row.device].title}"
            basis = (
                f"published: {where}, {row.examples_per_second:,.0f} examples/s "
                f"at n {row.batch_size}"
            )
            if batch_size != row.batch_size:
                basis += f", taken to be the same at n {batch_size}"
            return Step(batch_size / row.examples_per_second, basis)
    return None


def _estimated(
    batch_size: int,
    model: str | None,
    device: str,
    multiply_adds: float | None,
    precision: str | None,
    utilisation: float | None,
) -> Step:
    found = device_of(device)[1]
    if multiply_adds is None:
        assert model is not None
        multiply_adds = model_of(model)[1].multiply_adds
    peaks = found.peak_flops
    precision = precision or list(peaks)[-1]
    share = UTILISATION if utilisation is None else utilisation
    peak, operations = peaks[precision], OPERATIONS_PER_MULTIPLY_ADD * multiply_adds
    return Step(
        batch_size * operations / (peak * share),
        f"estimated: {operations / 1e9:,.1f} GFLOP an example, "
        f"{share:.0%} of the {peak / 1e12:,.1f} TFLOP/s of {found.title} in {precision}",
    )
