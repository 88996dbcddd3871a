"""Engine: many batches at once, in order, bounded, restartable; knows no framework or format."""

from adapters.cpus import usable_cpus
from adapters.engine.autotune import obstacle_to_processes
from adapters.engine.engine import Engine, Reading, close_engines, raise_as_itself
from adapters.engine.executors import CLUSTER, Settings
from adapters.engine.stream import Stream
from adapters.engine.tasks import Exhausted
from adapters.engine.waits import Wait, Waits

__all__ = [
    "CLUSTER",
    "Engine",
    "Exhausted",
    "Reading",
    "Settings",
    "Stream",
    "Wait",
    "Waits",
    "close_engines",
    "obstacle_to_processes",
    "raise_as_itself",
    "usable_cpus",
]
