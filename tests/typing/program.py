"""A user's program, which type checkers must accept; `tests/test_package.py` asks mypy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adapters import (
    AdapterError,
    Feature,
    ImageDecoder,
    RecordError,
    RecordWriter,
    SafeSequence,
    concatenate,
    diagnose,
    gluon_loader,
    mix,
    open_images,
    open_records,
    pack,
    show_versions,
    split,
)
from adapters.keras import WaitReport


def scaled(
    batch: tuple[NDArray[np.uint8], NDArray[np.int64]],
) -> tuple[NDArray[np.float32], object]:
    """A `batch_transform`."""
    return (batch[0] / 255).astype(np.float32), batch[1]


def trained(folder: str) -> float:
    """The names as users write them, with the types that they have."""
    pack(folder, "train", format="tfrecord", resize=256)
    decode = ImageDecoder(224, crop="random_resized", flip=True)
    records = open_records("train-*.tfrecord", decode=decode)
    digits = open_records(
        "digits.tfrecord",
        decode={"image": Feature("uint8", (28, 28), stored="raw"), "label": Feature("int64")},
        outputs=("image", "label"),
    )
    train, validation = split(open_images(folder, decode=decode), [0.8, 0.2], seed=1)
    both = concatenate([train, validation, train.select(train.labels == 1)])
    count: int = len(records) + len(digits) + len(both) + len(mix([train, both]).shares)
    with SafeSequence(
        records, 64, batch_transform=scaled, shuffle=True, workers="auto"
    ) as sequence:
        state: dict[str, int] = sequence.state_dict()
        sequence.load_state_dict(state)
        sequence.set_epoch(sequence.epoch + 1)
        sequence.explain()
        WaitReport(sequence)
        steps: int = len(sequence)
    loader = gluon_loader(records, batch_size=64, shuffle=True, num_workers="auto", seed=1)
    loader.close()
    return count / steps


def damaged(path: str) -> str | None:
    """Errors have their attributes."""
    try:
        with RecordWriter(path, format="recordio") as writer:
            number: int = writer.write(b"record")
        open_records(path).read(number)
    except RecordError as error:
        return str(error)
    except AdapterError:
        return None
    return None


def step(batch: NDArray[np.float64]) -> None:
    """Of `diagnose`."""


if __name__ == "__main__":
    show_versions()
    print(trained("photos/"), diagnose([np.zeros(3)], step))
