"""DCGAN on MNIST and ResNet-20 on CIFAR-10, out of arrays in memory, on 1, 2, 4 ... CPU cores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.data.digits import find_digits
from benchmarks.experiments.mnist_sweep import cpu_counts
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.sweeps import RowSpec, Session, our_failures
from benchmarks.lab.experiments.cifar import find_cifar

DCGAN, RESNET = "DCGAN", "ResNet-20"
OURS = "SafeSequence auto"
LOADERS = (OURS, "PyDataset")
ARRAYS = "arrays"  # Keras's own way, which the default size has no time for.
NOTES = (
    "DCGAN: batches of 32, one Adam for both of its networks; ResNet-20: batches of 64",
    "train s: from the start of the workers to the last step's end, without compilation; waited: "
    "in the training loop, for batches; PyDataset has a worker for each core; PSS and CPU: of all "
    "processes",
)


@dataclass(frozen=True)
class Size:
    """How much is trained on in a row.

    Args:
        steps: Batches of DCGAN and of ResNet-20; None for one epoch.
        repeats: How many times each row runs.
        limit_seconds: From a row's start to its result.
    """

    steps: tuple[int, int] | None
    repeats: int
    limit_seconds: float


SIZES = {
    "smoke": Size((2, 2), 1, 90),
    "default": Size((30, 12), 1, 90),
    "full": Size(None, 3, 1_800),
}
EPOCHS = {DCGAN: 60_000, RESNET: 50_000}
BATCH_SIZES = {DCGAN: 32, RESNET: 64}


@pytest.mark.parametrize("network", [DCGAN, RESNET])
def test_networks(session: Session, network: str) -> None:
    """Every row of this package's loader ends well."""
    size = SIZES[session.size]
    with session.uncaptured():
        data = _find(network, session.data_dir)
    samples = EPOCHS[network]
    if size.steps is not None:
        samples = BATCH_SIZES[network] * size.steps[network == RESNET]
    experiment = session.experiment(
        "networks",
        "DCGAN and ResNet-20 on so many cores",
        "What does a loader leave of so many CPU cores to small networks?",
    )
    experiment.axis = "CPU cores"
    trained = f"{network}: {data[0]}; {samples:,} samples, once"
    experiment.note(trained, *NOTES)
    specs = [
        RowSpec(
            framework=network,
            loader=loader,
            workers=cores,
            ours=loader == OURS,
            program="benchmarks.lab.experiments.networks",
            options={"network": network, "data": str(data[1]), "samples": samples},
            limit_seconds=size.limit_seconds,
            cpus=cores,
            trains_keras=True,
        )
        for loader in LOADERS + ((ARRAYS,) if session.size != "default" else ())
        for cores in cpu_counts(usable_cpus(), session.size)
    ]
    assert our_failures(session.sweep(experiment, specs, size.repeats)) == []


def _find(network: str, data_dir: Path | None) -> tuple[str, Path]:
    """What the table calls the data, and their path."""
    if network == DCGAN:
        digits = find_digits(data_dir)
        return f"digits: {digits.name}", digits.path
    cifar = find_cifar(data_dir)
    return f"pictures: {cifar.name}", cifar.path
