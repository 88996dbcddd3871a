"""Record files, without any framework: RecordIO and TFRecord, their indexes, what records hold.

bytes (storage)  ->  records (recordio, tfrecord)  ->  by number (index, sidecar, shard, files)
                                                       what is in one (envelope, irheader, example)
"""

from __future__ import annotations

from adapters.records.files import RecordFiles
from adapters.records.formats import CODECS
from adapters.records.index import Index
from adapters.records.shard import Shard
from adapters.records.sidecar import index_paths
from adapters.records.writer import RecordWriter

__all__ = ["CODECS", "Index", "RecordFiles", "RecordWriter", "Shard", "index_paths"]
