"""Progress bars of the command line, on standard error and only on a terminal.

A bar appears with the first progress report, so that it doesn't mix with the script's earlier
output, and disappears at the end.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

Progress = Callable[[int, int], Any]


@contextlib.contextmanager
def bar(name: str, unit: str = "step") -> Iterator[Progress]:
    """Show a progress bar if standard error is a terminal.

    Args:
        name: Label of the bar.
        unit: Unit of the count.

    Yields:
        ``progress(done, total)``. A smaller ``done`` than before restarts the bar, for example for
        the next file.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # No monitor thread, which would outlive the bar.

    with contextlib.ExitStack() as stack:
        shown: Any = None

        def progress(done: int, total: int) -> None:
            nonlocal shown
            if shown is None:
                shown = stack.enter_context(Bar(total=total, desc=name, unit=unit, leave=False))
            if done < shown.n:
                shown.reset(total)
            shown.total = total
            begins = shown.n == 0
            shown.update(done - shown.n)
            if begins:  # Show it at once, despite tqdm's minimum interval.
                shown.refresh()

        yield progress
