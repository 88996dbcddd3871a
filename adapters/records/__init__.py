"""Framework-independent record files: RecordIO and TFRecord, their indexes and record contents.

bytes (storage)  ->  records (recordio, tfrecord)  ->  by number (index, sidecar, shard, files)
                                                       contents (envelope, irheader, example)
"""

from __future__ import annotations

from adapters.records.files import RecordFiles
from adapters.records.formats import CODECS
from adapters.records.index import Index
from adapters.records.shard import Shard
from adapters.records.sidecar import index_paths
from adapters.records.writer import RecordWriter

__all__ = ["CODECS", "Index", "RecordFiles", "RecordWriter", "Shard", "index_paths"]
