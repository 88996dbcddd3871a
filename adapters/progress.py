"""Progress bars on standard error.

A bar appears with the first progress report, so that it doesn't mix with a script's earlier output,
and disappears at the end.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def bar(
    name: str, unit: str = "step", shown: bool | None = None
) -> Iterator[Callable[[int, int], Any]]:
    """Show a progress bar, None: if standard error is a terminal; yield ``progress(done, total)``.

    A smaller ``done`` than before restarts the bar, for example for the next file.
    """
    if sys.stderr is None or not (sys.stderr.isatty() if shown is None else shown):
        yield lambda done, total: None
        return
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # No monitor thread, which would outlive the bar.

    with Bar(desc=name, unit=unit, leave=False, delay=1e-9) as drawn:

        def progress(done: int, total: int) -> None:
            if done < drawn.n:
                drawn.reset(total)
            drawn.total = total
            begins = drawn.n == 0
            drawn.update(done - drawn.n)
            if begins:  # Show it at once, despite tqdm's minimum interval.
                drawn.refresh()

        yield progress
