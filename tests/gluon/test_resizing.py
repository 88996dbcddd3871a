"""Sizes and channels that MXNet can't resize are an error, as they are there."""

from __future__ import annotations

import contextlib

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset
from mxnet.gluon.data.vision.transforms import CropResize, Resize

from adapters import gluon_loader
from tests.gluon.data_sets import assert_same, theirs

INLINE = {"num_workers": 0}


@pytest.mark.parametrize("channels", [3, 5])
@pytest.mark.parametrize(
    "block", [lambda way: Resize(8, interpolation=way), lambda way: CropResize(0, 0, 4, 4, 3, way)]
)
@pytest.mark.parametrize("way", [1, 9, 11])
def test_what_mxnet_cannot_resize_is_its_error_and_not_the_end_of_the_process(way, block, channels):
    images = np.zeros((4, 6, 7, channels), "uint8")
    data = ArrayDataset(mx.nd.array(images, dtype="uint8"), np.arange(4))
    data = data.transform_first(block(way))
    if way == 1 and (channels == 3 or isinstance(block(way), Resize)):
        assert_same(list(gluon_loader(data, 2, **INLINE)), theirs(data, batch_size=2))
        return
    with pytest.raises(mx.MXNetError):
        [images.asnumpy() for images, _ in gluon_loader(data, 2, **INLINE)]
    with contextlib.suppress(mx.MXNetError):
        mx.nd.waitall()  # It would raise what is left in another test.
