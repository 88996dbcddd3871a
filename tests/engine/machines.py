"""How long hypothesis's state machines run."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests import fuzzing

TIMES = int(os.environ.get("ADAPTERS_FUZZ_STATES", "1"))


def run(machine: Any, examples: int, steps: int, **options: Any) -> None:
    """Try so many sequences of so many steps, or ``ADAPTERS_FUZZ_STATES`` times as many."""
    limits = settings(
        max_examples=fuzzing.examples(examples) * TIMES,
        stateful_step_count=steps,
        suppress_health_check=list(HealthCheck),
        **options,
    )
    run_state_machine_as_test(machine, settings=limits)
