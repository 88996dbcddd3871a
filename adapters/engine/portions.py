"""How much work a job is: several batches, one, or a part of one."""

from __future__ import annotations

import math

from adapters.engine.jobs import Crew

# A batch that takes longer is computed in parts: the first batch comes sooner.
_SPLIT_SECONDS = 0.05
# So many jobs for each worker are to be there while the window is full: where it has fewer batches
# than that, they are computed in parts, too, each of which is worth so many handovers.
_JOBS_EACH, _HANDOVERS = 2, 2


def group_size(crew: Crew, seconds: float, window: int) -> int:
    """Batches that a worker gets as one job.

    Args:
        crew: The workers.
        seconds: What a batch takes; 0 if it isn't known.
        window: Batches that are asked for ahead of the consumer.
    """
    if not seconds:
        return 1
    fair = max(1, window // (2 * crew.count))
    return max(1, min(fair, int(crew.group_seconds / seconds)))


def parts(crew: Crew, seconds: float, window: int, active: int, batch_size: int) -> int:
    """Jobs that a batch is made in, where its layout is known.

    Args:
        crew: The workers.
        seconds: What a batch takes; 0 if it isn't known.
        window: Batches that are asked for ahead of the consumer.
        active: Workers that are to be busy.
        batch_size: Samples.
    """
    if not crew.splits or crew.starting:
        return 1
    keep_busy = _JOBS_EACH * active / max(1, window)
    worth = seconds / (_HANDOVERS * crew.group_seconds)
    wanted = max(seconds / _SPLIT_SECONDS, min(keep_busy, worth))
    return max(1, min(math.ceil(wanted), crew.count, batch_size))
