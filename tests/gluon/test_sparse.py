"""Sparse batches, which only a batchify of the user's own makes."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import DataLoader

from tests.gluon.data_sets import numpy_semantics, outline
from tests.gluon.executors import EXECUTORS, opened

ROWS = np.eye(7, 5, dtype=np.float64) * np.arange(1, 8)[:, None]


def csr(samples: list[Any]) -> Any:
    return mx.nd.sparse.csr_matrix(np.array(samples), dtype="float64")


def row_sparse(samples: list[Any]) -> Any:
    return mx.nd.array(np.array(samples), dtype="float32").tostype("row_sparse")


def beside_others(samples: list[Any]) -> Any:
    return {"x": (csr(samples), [row_sparse(samples)]), "y": mx.nd.array(samples), "n": 3}


def told(batch: Any) -> Any:
    """Class, storage type and values of each array."""
    if isinstance(batch, mx.nd.NDArray):
        return type(batch), batch.stype, outline(batch), batch.tostype("default").shape
    if isinstance(batch, (list, tuple)):
        return type(batch), [told(member) for member in batch]
    if isinstance(batch, dict):
        return {name: told(member) for name, member in batch.items()}
    return batch


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("batchify", [csr, row_sparse, beside_others])
def test_a_sparse_batch_arrives_as_mxnets_loader_gives_it(batchify, executor):
    # The last batches hold nothing but zeros.
    expected = [told(batch) for batch in DataLoader(ROWS, 2, batchify_fn=batchify)]
    with opened(ROWS, executor, 2, batchify_fn=batchify) as loader:
        assert [told(batch) for batch in loader] == expected


def test_a_sparse_batch_from_a_process_can_be_computed_with():
    with opened(ROWS, "processes-1", 7, batchify_fn=csr) as loader:
        (batch,) = loader
    product = mx.nd.sparse.dot(batch, mx.nd.ones((5, 2), dtype="float64"))
    np.testing.assert_array_equal(product.asnumpy(), ROWS.sum(1, keepdims=True).repeat(2, 1))
    assert batch.asscipy().nnz == 5


@pytest.mark.parametrize("semantics", [False, True])
@pytest.mark.parametrize("kind", ["nd", "np"])
def test_a_process_gives_the_kind_of_array_that_a_batchify_makes(kind, semantics):
    def batchify(samples: list[Any]) -> Any:
        return (mx.np if kind == "np" else mx.nd).array(np.array(samples))

    with numpy_semantics(semantics), opened(ROWS, "processes-1", 4, batchify_fn=batchify) as loader:
        assert {type(batch) for batch in loader} == {
            mx.np.ndarray if kind == "np" else mx.nd.NDArray
        }
