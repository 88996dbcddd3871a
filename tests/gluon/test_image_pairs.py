"""Pairs of an image and its mask in Gluon."""

from __future__ import annotations

import mxnet as mx
import numpy as np

from adapters import gluon_loader
from tests.contract.test_image_pairs import opened


def test_pairs_go_into_gluon(tmp_path):
    for kind in ("files", "records"):
        source = opened(kind, tmp_path, "float32")
        for workers in (0, 2):
            with gluon_loader(source, 5, shuffle=True, num_workers=workers, seed=1) as loader:
                for images, masks in loader:
                    assert isinstance(images, mx.nd.NDArray)
                    images, masks = images.asnumpy(), masks.asnumpy()
                    np.testing.assert_array_equal(images, masks.repeat(3, 3))
        source.close()
