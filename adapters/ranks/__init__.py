"""The rank of this process in its job, and the shard that a loader takes for it."""

from adapters.ranks.sharding import ShardArgument

__all__ = ["ShardArgument"]
