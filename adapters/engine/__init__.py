"""Engine: many batches at once, in order, bounded, restartable; knows no framework or format."""

from adapters.cpus import usable_cpus
from adapters.engine.autotune import obstacle_to_processes
from adapters.engine.engine import Engine, Reading, raise_as_itself, wait_for_readers
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
    "obstacle_to_processes",
    "raise_as_itself",
    "usable_cpus",
    "wait_for_readers",
]
