"""The rank of this process in its job, and the shard that its loader reads."""

from adapters.ranks.sharding import ShardArgument

__all__ = ["ShardArgument"]
