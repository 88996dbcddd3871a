"""Data sets of MXNet's classes with a handle of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from mxnet.gluon.data import Dataset, RecordFileDataset
from mxnet.recordio import MXIndexedRecordIO

from tests.contract.stateful import LENGTH, SIZE, File, array, content, pause


class GluonFile(File, Dataset):
    """A Gluon data set that seeks and reads."""


class Records(RecordFileDataset):
    """Adds what it keeps in one buffer to MXNet's own handle."""

    def __init__(self, folder: Path) -> None:
        path = folder / "samples.rec"
        writer = MXIndexedRecordIO(str(path.with_suffix(".idx")), str(path), "w")
        for number in range(LENGTH):
            writer.write_idx(number, content(number))
        writer.close()
        super().__init__(str(path))
        self.buffer = bytearray(SIZE)

    def __getitem__(self, number: int) -> Any:
        self.buffer[:] = super().__getitem__(number)
        pause()
        return np.int64(number), array(self.buffer)

    def close(self) -> None:
        """Close the file."""
        self._record.close()
