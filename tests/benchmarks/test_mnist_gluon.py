from __future__ import annotations

import importlib.util

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mxnet") is None, reason="MXNet has no wheels for this Python"
)


def test_a_gpu_that_mxnet_cannot_compute_on_is_not_trained_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that is newer than the wheel; a wheel for CPUs refuses in the same way."""
    from benchmarks.experiments.mnist_gluon import find_context, mx

    if mx.context.num_gpus():
        pytest.skip("MXNet may well compute on the GPU that is here")
    monkeypatch.setattr(mx.context, "num_gpus", lambda: 1)
    assert find_context() == mx.cpu(0)
