"""Does a network learn as well from blocks as from a full shuffle? From sorted files it doesn't."""

from __future__ import annotations

from benchmarks.data.digits import find_digits
from benchmarks.harness.results import Column
from benchmarks.harness.sweeps import RowSpec, Session, our_failures

COLUMNS = (
    Column("full", "full shuffle", ".4f"),
    Column("full_deviation", "±", ".4f"),
    Column("blocks", "blocks", ".4f"),
    Column("blocks_deviation", "±", ".4f"),
    Column("difference", "blocks - full", "+.4f"),
    Column("error", "standard error", ".4f"),
    Column("sorted", "blocks, sorted file", ".4f"),
    Column("full_classes", "classes, full", ",.0f"),
    Column("blocks_classes", "blocks", ",.0f"),
    Column("sorted_classes", "sorted", ",.0f"),
)
# Digits to train and test on, epochs, seeds.
SIZES = {"smoke": (640, 500, 1, 1), "default": (5000, 5000, 2, 5), "full": (20_000, 10_000, 3, 5)}
# Figures with a bar; of five pairs, 1 in 50 has a difference above it by chance.
DIFFERENCE = "convergence: difference of accuracies, standard errors"
SORTED = "convergence: sorted file behind a full shuffle, standard deviations"
LIMIT_SECONDS = 600


def test_convergence(session: Session) -> None:
    """Blocks of what ``pack`` shuffled train as well as a full shuffle; of sorted files, worse."""
    digits = find_digits(session.data_dir)
    experiment = session.experiment(
        "convergence",
        "Convergence: LeNet on digits sorted by class, as packed",
        "Does a network learn as well from blocks?",
    )
    experiment.columns = COLUMNS
    train, test, epochs, seeds = SIZES[session.size]
    experiment.note(
        f"digits: {digits.name}; {train:,} to train on, sorted by class, {test:,} to test on; "
        f"accuracy after {epochs} epochs, mean of {seeds} seeds; blocks: 4 of 64 records at a "
        "time; sorted file: pack(seed=None); classes: in the first batch of 64",
    )
    spec = RowSpec(
        framework="Keras",
        loader="orders",
        workers="auto",
        ours=True,
        program="benchmarks.lab.experiments.convergence",
        options={
            "digits": str(digits.path),
            "train": train,
            "test": test,
            "epochs": epochs,
            "seeds": seeds,
        },
        limit_seconds=LIMIT_SECONDS,
    )
    runs = session.sweep(experiment, [spec], repeats=1)
    assert our_failures(runs) == []
    for run in runs:
        found = run.metrics
        errors = abs(found["difference"]) / max(found["error"], 1e-9)
        session.judge(experiment, DIFFERENCE, errors)
        behind = (found["full"] - found["sorted"]) / max(found["full_deviation"], 1e-9)
        session.judge(experiment, SORTED, behind)
