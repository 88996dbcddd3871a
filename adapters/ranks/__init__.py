"""Which of a job's processes this is, and so which shard it loads: ``shard="auto"``."""

from adapters.ranks.asked import AskedShard

__all__ = ["AskedShard"]
