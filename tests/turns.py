"""Threads that share one iterator."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any


def read_by_threads(iterator: Iterator[Any], threads: int = 4) -> list[Any]:
    """What all of them are given until each has been told that there is no more.

    Raises:
        BaseException: What one of them was told instead.
    """
    given: list[Any] = []
    told: list[BaseException | None] = []
    together = threading.Barrier(threads)

    def read() -> None:
        together.wait()
        try:
            given.extend(iterator)
        except BaseException as error:
            told.append(error)
        else:
            told.append(None)

    running = [threading.Thread(target=read) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    assert len(told) == threads
    for error in told:
        if error is not None:
            raise error
    return given
