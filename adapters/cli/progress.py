"""Progress bars of the command line: what is done, of how much, and how long the rest will take.

A bar is there on a terminal only, on standard error; it appears with the first that is done, so
that what a script prints before doesn't meet it, and goes when all is over.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

Progress = Callable[[int, int], Any]


@contextlib.contextmanager
def bar(name: str, unit: str = "step") -> Iterator[Progress]:
    """A progress bar on a terminal; nothing elsewhere.

    Args:
        name: Of what goes on.
        unit: Of what is counted.

    Yields:
        To be called with the number that is done, and of all. Fewer than before begin anew, as
        with the next file.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # Or a thread of tqdm's stays when all is over.

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
            if begins:  # At once, whatever tqdm's least interval is.
                shown.refresh()

        yield progress
