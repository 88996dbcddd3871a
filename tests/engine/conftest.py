"""Two processes do all that one does, and meet each other: one alone is for ``--full``.

A cluster is started for the tests of this folder that name one, once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clusters import cluster
from tests.engine.executors import clients


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what has one worker process, and give a cluster to what asks for it."""
    callspec = getattr(item, "callspec", None)
    executor = callspec.params.get("executor") if callspec is not None else None
    if executor == "processes-1":
        item.add_marker(pytest.mark.full)
    if executor == "cluster":
        item.fixturenames.insert(0, "dask_client")  # type: ignore[attr-defined]


@pytest.fixture(scope="package")
def dask_client() -> Iterator[Any]:
    """The client of a cluster of two workers."""
    with cluster() as client:
        clients.append(client)
        yield client
        clients.clear()
