"""One row of the MNIST sweep over CPU cores: a row of the worker sweep on so many of them.

There, `workers` is the place on the axis; here that is the cores, so the number of workers, which
may be "auto", comes in an option of its own, and with it whose row it is.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.row import Measurement


def measure(options: Mapping[str, Any]) -> Measurement:
    """One row, on the processors that `benchmarks.harness.row` has left it.

    Args:
        options: Those of the worker sweep, and `program`, `contestant` and `asked`: the worker
            sweep's module, and its `loader` and `workers`.
    """
    program = importlib.import_module(options["program"])
    row: Measurement = program.measure(
        {**options, "loader": options["contestant"], "workers": options["asked"]}
    )
    return row
