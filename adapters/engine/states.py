"""What may become of a batch on its way to its reader: states, and which may follow which.

    EXPECTED --ask--> QUEUED --last job--> MADE --read--> HERE
       |                 |                   '----drop--> DROPPED
       '--> HERE, FAILED '--> HERE, FAILED, GIVEN_UP, DROPPED

What FAILED is EXPECTED again once its reader has been told; in a forked process, which has no
workers, so is whatever isn't here. ``Changing.become`` is all that changes a state.
"""

from __future__ import annotations

import enum


class State(enum.IntEnum):
    """Of a batch. Integers, as a plain ``Enum`` is hashed by a function in Python."""

    EXPECTED = 0
    """Nobody has been asked for it: who reads it computes it."""
    QUEUED = 1
    """Workers have it, or will: who reads it waits."""
    MADE = 2
    """It lies in the crew's memory, until it is collected or discarded."""
    HERE = 3
    """Its arrays are here."""
    FAILED = 4
    """Its error waits for its reader; who reads it again computes it."""
    GIVEN_UP = 5
    """Processes have died over it again and again; whoever reads it is told."""
    DROPPED = 6
    """Nobody wants it, and the crew has nothing of it any more."""


# By themselves, as `State.MADE` takes 65 ns each time, and a batch a dozen (Python 3.11).
EXPECTED, QUEUED, MADE, HERE, FAILED, GIVEN_UP, DROPPED = State

FOLLOWING: dict[State, frozenset[State]] = {
    EXPECTED: frozenset({QUEUED, HERE, FAILED}),
    QUEUED: frozenset(set(State) - {QUEUED}),
    MADE: frozenset({HERE, DROPPED, EXPECTED}),
    HERE: frozenset(),
    FAILED: frozenset({EXPECTED}),
    GIVEN_UP: frozenset({EXPECTED}),
    DROPPED: frozenset(),
}
"""What may come after a state."""


class IllegalTransition(RuntimeError):
    """A batch was to change as none may: an error of ours.

    Args:
        state: Of the batch.
        following: What it was to become.
    """

    def __init__(self, state: State, following: State) -> None:
        super().__init__(state, following)
        self.state = state
        self.following = following

    def __str__(self) -> str:
        return (
            f"internal error: a batch that is {self.state.name} can't become "
            f"{self.following.name}; please report it"
        )


class Changing:
    """Something with a state."""

    state: State

    def become(self, following: State) -> None:
        """Change the state, which nothing else does.

        Raises:
            IllegalTransition: ``following`` may not come now; the state stays.
        """
        if following not in FOLLOWING[self.state]:
            raise IllegalTransition(self.state, following)
        self.state = following
