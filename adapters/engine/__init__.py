"""Many batches at once, in order, bounded, restartable; knows no framework and no file format."""

from adapters.engine.engine import Engine
from adapters.engine.settings import Settings
from adapters.engine.stream import Exhausted, Stream
from adapters.engine.tuning import obstacle_to_processes, usable_cpus
from adapters.engine.waits import Wait, Waits

__all__ = [
    "Engine",
    "Exhausted",
    "Settings",
    "Stream",
    "Wait",
    "Waits",
    "obstacle_to_processes",
    "usable_cpus",
]
