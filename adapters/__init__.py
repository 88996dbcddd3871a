"""Data-loading adapters that keep an accelerator busy.

Public names are bound on first use: importing ``adapters`` imports no framework.

Example:
    >>> import adapters
    >>> "SafeSequence" in dir(adapters)
    True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.lazily import bound

if TYPE_CHECKING:
    from adapters.batch.blocks import Blocks
    from adapters.batch.buckets import Buckets
    from adapters.batch.weights import Weighted, class_balanced
    from adapters.collating import pad, ragged
    from adapters.diagnosis import diagnose
    from adapters.errors import AdapterError, ClosedError, RecordError, WorkerError
    from adapters.gluon import gluon_loader
    from adapters.images import ImageDecoder
    from adapters.keras import SafeSequence
    from adapters.machine import show_versions
    from adapters.packing import materialize, pack
    from adapters.records import RecordWriter
    from adapters.remote import Cache
    from adapters.selecting import concatenate, mix, packed, split
    from adapters.sources.features import Feature
    from adapters.sources.folders import open_images
    from adapters.sources.records import open_records
    from adapters.sources.targets import Boxes, Points
    from adapters.viewing.survey import statistics
else:  # Hidden from type checkers: to them, __getattr__ would define every name.
    __getattr__ = bound(
        __name__,
        {
            "AdapterError": "adapters.errors",
            "Blocks": "adapters.batch.blocks",
            "Boxes": "adapters.sources.targets",
            "Buckets": "adapters.batch.buckets",
            "Cache": "adapters.remote",
            "ClosedError": "adapters.errors",
            "Feature": "adapters.sources.features",
            "ImageDecoder": "adapters.images",
            "Points": "adapters.sources.targets",
            "RecordError": "adapters.errors",
            "RecordWriter": "adapters.records",
            "SafeSequence": "adapters.keras",
            "Weighted": "adapters.batch.weights",
            "WorkerError": "adapters.errors",
            "class_balanced": "adapters.batch.weights",
            "concatenate": "adapters.selecting",
            "diagnose": "adapters.diagnosis",
            "gluon": "adapters.gluon",
            "gluon_loader": "adapters.gluon",
            "keras": "adapters.keras",
            "materialize": "adapters.packing",
            "mix": "adapters.selecting",
            "open_images": "adapters.sources.folders",
            "open_records": "adapters.sources.records",
            "pack": "adapters.packing",
            "packed": "adapters.selecting",
            "pad": "adapters.collating",
            "ragged": "adapters.collating",
            "show_versions": "adapters.machine",
            "split": "adapters.selecting",
            "statistics": "adapters.viewing.survey",
            "transforms": "adapters.transforms",
        },
    )

__version__ = "1.0.0"
__all__ = [
    "AdapterError",
    "Blocks",
    "Boxes",
    "Buckets",
    "Cache",
    "ClosedError",
    "Feature",
    "ImageDecoder",
    "Points",
    "RecordError",
    "RecordWriter",
    "SafeSequence",
    "Weighted",
    "WorkerError",
    "__version__",
    "class_balanced",
    "concatenate",
    "diagnose",
    "gluon_loader",
    "materialize",
    "mix",
    "open_images",
    "open_records",
    "pack",
    "packed",
    "pad",
    "ragged",
    "show_versions",
    "split",
    "statistics",
]


def __dir__() -> list[str]:
    return __all__
