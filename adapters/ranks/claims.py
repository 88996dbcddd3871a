"""What somebody says about this process's place in a job, and whom to believe.

Launchers nest: Slurm starts one process on each of 2 hosts, which starts 8 by ``torchrun``. Then
the outer one numbers hosts and the inner one processes, and both are right. What can't be such a
nest is a contradiction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Claim(NamedTuple):
    """What one speaker says."""

    speaker: str
    """Who, and by which names: ``"torchrun (RANK, WORLD_SIZE)"``."""
    rank: int
    """The number of this process, from 0."""
    world: int
    """How many processes there are."""

    def __str__(self) -> str:
        """As messages name it."""
        return f"{self.speaker} says {self.rank} of {self.world}"

    @property
    def possible(self) -> bool:
        """Whether there can be such a process."""
        return 0 <= self.rank < self.world

    @property
    def shard(self) -> tuple[int, int]:
        """``(index, count)``."""
        return self.rank, self.world


class ContradictionError(ValueError):
    """Two speak of different places, and which is this process's nobody knows."""


def believed(frameworks: Sequence[Claim], launchers: Sequence[Claim]) -> Claim | None:
    """Which of these claims is this process's place.

    Args:
        frameworks: Of the frameworks that the program uses.
        launchers: Of what has started it, the innermost first.

    Returns:
        The first framework's, or else the innermost launcher's; None if nobody speaks.

    Raises:
        ContradictionError: Another one says something that can't be true beside it.
    """
    claims = [*frameworks, *launchers]
    if not claims:
        return None
    first = claims[0]
    for other in claims[1:]:
        if other.shard == first.shard or (other in launchers and _holds(other, first)):
            continue
        raise ContradictionError(
            'shard="auto" needs one (rank, world) for this process, and '
            f"{first}, {other}: give shard=(index, count) yourself, or unset the variables of the "
            "one that is wrong"
        )
    return first


def _holds(outer: Claim, inner: Claim) -> bool:
    """Whether each process of ``outer`` may have started several of ``inner``, this one too."""
    if outer.world >= inner.world or inner.world % outer.world:
        return False
    # In blocks, as torchrun numbers them, or in turn, as mpirun --map-by node does.
    each = inner.world // outer.world
    return outer.rank in (inner.rank // each, inner.rank % outer.world)
