"""``HeldReading``: objects of a store in memory, to measure what comes after fetching."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.sources.filereading import Room
from adapters.sources.files import Files
from adapters.sources.objectreading import ObjectReading


class HeldReading(ObjectReading):
    """Keeps some of the files in memory permanently.

    Args:
        files: Paths, by number.
        held: Contents of these files, by number.
    """

    def __init__(self, files: Files, held: dict[int, bytes]) -> None:
        super().__init__(files)
        self._always = held

    def read(self, number: int, room: Room) -> memoryview:
        """Return a whole file."""
        found = self._always.get(number)
        return super().read(number, room) if found is None else memoryview(found)

    def start(self, numbers: NDArray[np.int64]) -> None:
        """Do nothing: files in memory need no request."""

    def expect(self, numbers: NDArray[np.int64], elsewhere: bool) -> None:
        """Do nothing: files in memory need no request."""

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self._files, "held": self._always}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["files"], state["held"])  # type: ignore[misc]
