"""Many batches at once, in order, bounded, restartable; knows no framework and no file format."""

from adapters.engine.engine import Engine, Settings
from adapters.engine.stream import Stream

__all__ = ["Engine", "Settings", "Stream"]
