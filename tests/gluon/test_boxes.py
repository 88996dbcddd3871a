"""Detection labels, as MXNet's own ``ImageDetIter`` reads them."""

from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest

from adapters import Boxes, ImageDecoder, open_records
from tests.images.pictures import encoded, picture


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Of what MXNet calls in NumPy.
@pytest.mark.parametrize(("header", "width"), [([2], 5), ([4], 6), ([5], 5)])
def test_boxes_are_those_of_image_det_iter(tmp_path, header, width):
    rng = np.random.default_rng(width)
    record = mx.recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "w")
    for number, count in enumerate((3, 1, 4)):
        begins = rng.random((count, 2)) * 0.7
        rows = np.column_stack(
            [rng.integers(0, 9, count), begins, begins + 0.2, np.ones((count, width - 5))]
        )
        rows[-1, 3:5] -= 0.2 * (number == 2)  # Without an area: both drop it.
        label = np.array([*header, width, *[7.0] * (header[0] - 2), *rows.ravel()], np.float32)
        image = encoded(picture(40, 50), "JPEG")
        head = mx.recordio.IRHeader(0, label, number, 0)
        record.write_idx(number, mx.recordio.pack(head, image))
    record.close()
    theirs = mx.image.ImageDetIter(
        batch_size=3, data_shape=(3, 32, 32), path_imgrec=str(tmp_path / "a.rec")
    )
    labels = theirs.next().label[0].asnumpy()
    spec = {"image": ImageDecoder(32), "label": Boxes.im2rec(output="rel_xyxy")}
    for sample, rows in zip(open_records(tmp_path / "a.rec", decode=spec), labels, strict=True):
        target, rows = sample["label"], rows[rows[:, 0] >= 0]
        np.testing.assert_array_equal(target["classes"], rows[:, 0])
        np.testing.assert_allclose(target["boxes"], rows[:, 1:5], atol=1e-6)
        if width > 5:
            np.testing.assert_array_equal(target["extra"], rows[:, 5:])
