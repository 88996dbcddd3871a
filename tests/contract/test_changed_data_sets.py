"""A data set that opens its file on first use, and that is changed after its loader was made."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tests.contract.front_ends import (
    AUTO,
    FRONT_ENDS,
    INLINE,
    TWO_PROCESSES,
    batches_of,
    loader_of,
)

LENGTH = 64


class Scaled:
    """Numbers from a file, times a factor that the training loop changes."""

    def __init__(self, path: Any) -> None:
        self.path, self.file, self.factor = path, None, 1

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, number: int) -> np.float32:
        if self.file is None:
            self.file = open(self.path, "rb")  # noqa: SIM115
        self.file.seek(number)
        time.sleep(0.001)
        return np.float32(self.file.read(1)[0] * self.factor)


@pytest.fixture
def scaled(tmp_path):
    (tmp_path / "numbers").write_bytes(bytes(range(LENGTH)))
    data_set = Scaled(tmp_path / "numbers")
    yield data_set
    if data_set.file is not None:
        data_set.file.close()


def numbers_of(loader: Any) -> list[float]:
    return np.concatenate(list(batches_of(loader))).tolist()


@pytest.mark.parametrize("looked_at", [False, True])
@pytest.mark.parametrize("workers", [INLINE, AUTO, TWO_PROCESSES])
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_change_before_the_first_pass_counts(front_end, workers, looked_at, scaled):
    with loader_of(front_end, scaled, 8, workers=workers) as loader:
        scaled.factor = 3
        if looked_at:
            scaled[0]
        for _ in range(3):
            assert numbers_of(loader) == [3.0 * number for number in range(LENGTH)]


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_change_after_auto_has_measured_counts_in_what_is_sent(front_end, scaled):
    """Processes have the data set as it was when they started, but never as it was before that."""
    with loader_of(front_end, scaled, 8, workers=AUTO) as loader:
        batches = batches_of(loader)
        assert next(batches).tolist() == list(range(8))
        scaled.factor = 5
        for _ in range(2):
            list(batches)
            batches = batches_of(loader)
        assert numbers_of(loader) == [5.0 * number for number in range(LENGTH)]


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_change_that_cannot_be_sent_again_is_computed_inline(front_end, scaled):
    with loader_of(front_end, scaled, 8, workers=TWO_PROCESSES) as loader:
        assert numbers_of(loader) == list(range(LENGTH))
        scaled[0]
        scaled.path = str(scaled.path)
        assert numbers_of(loader) == list(range(LENGTH))
