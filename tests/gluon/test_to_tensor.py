"""``ToTensor`` of a batch of bytes, which the kernel divides where it can."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from mxnet.gluon.data.vision.transforms import ToTensor

from adapters.gluon.stages import stages_of


def unaligned(shape: Any, dtype: Any) -> Any:
    return np.zeros(4 * math.prod(shape) + 1, np.uint8)[1:].view(dtype).reshape(shape)


def apart(shape: Any, dtype: Any) -> Any:
    return np.zeros((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]


@pytest.mark.parametrize("allocate", [np.empty, unaligned, apart])
def test_it_writes_into_any_memory(allocate):
    images = np.arange(72, dtype=np.uint8).reshape(2, 3, 4, 3)
    (stage,) = stages_of(ToTensor())
    expected = images.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
    assert np.array_equal(stage.batch(images, np.empty((2, 0)), allocate), expected)
