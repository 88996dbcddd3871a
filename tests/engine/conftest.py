"""A cluster is started for the tests of this folder that name one, once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clusters import cluster
from tests.engine.executors import clients


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a cluster to what asks for it."""
    callspec = getattr(item, "callspec", None)
    if callspec is not None and callspec.params.get("executor") == "cluster":
        item.fixturenames.insert(0, "dask_client")  # type: ignore[attr-defined]


@pytest.fixture(scope="package")
def dask_client() -> Iterator[Any]:
    """The client of a cluster of two workers."""
    with cluster() as client:
        clients.append(client)
        yield client
        clients.clear()
