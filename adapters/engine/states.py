"""States of a batch on its way to the reader, and their transitions.

    EXPECTED --ask--> QUEUED --last job--> MADE --read--> HERE
       |                 |                   '----drop--> DROPPED
       '--> HERE, FAILED '--> HERE, FAILED, GIVEN_UP, DROPPED

A FAILED batch is EXPECTED again once its reader has got the error. In a forked process, which has
no workers, so is any batch that isn't HERE. Only ``Changing.become`` changes a state.
"""

from __future__ import annotations

import enum


class State(enum.IntEnum):
    """State of a batch. An ``IntEnum``, as a plain ``Enum`` is hashed by a Python function."""

    EXPECTED = 0
    """Not submitted. The reader computes it inline."""
    QUEUED = 1
    """Submitted to workers, or about to be. The reader waits."""
    MADE = 2
    """Done, and in the executor's memory until it is collected or discarded."""
    HERE = 3
    """Its arrays are available in this process."""
    FAILED = 4
    """Failed. The next read raises the error; a later read recomputes the batch."""
    GIVEN_UP = 5
    """Several processes have died in it. Each read raises an error."""
    DROPPED = 6
    """Abandoned, and discarded by the executor."""


# As module constants, because `State.MADE` takes 65 ns, a dozen times per batch (Python 3.11).
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
"""Allowed transitions."""


class IllegalTransition(RuntimeError):
    """An invalid state transition: an internal error.

    Args:
        state: State of the batch.
        following: The requested state.
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
    """Base of objects with a state."""

    state: State

    def become(self, following: State) -> None:
        """Change the state; the only way to do so.

        Raises:
            IllegalTransition: The transition isn't allowed; the state stays.
        """
        if following not in FOLLOWING[self.state]:
            raise IllegalTransition(self.state, following)
        self.state = following
