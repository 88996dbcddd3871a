"""What ``adapters inspect`` prints to be pasted makes right batches of masks and of boxes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from adapters import Boxes, Feature, ImageDecoder, SafeSequence, open_records, pad
from adapters.cli import main
from tests.contract.detection import detection, example, gradient, written
from tests.contract.image_files import COLOURS, IDS, SIXTEEN, encoded, palette
from tests.images.pictures import npy


def pasted(path: Path, capsys: Any) -> dict[str, Any]:
    assert main(["inspect", str(path)]) == 0
    said = capsys.readouterr().out
    names: dict[str, Any] = {"Boxes": Boxes, "Feature": Feature, "ImageDecoder": ImageDecoder}
    exec(said[said.index("decode = {") :], names)
    return names["decode"]  # type: ignore[no-any-return]


def test_masks_keep_their_ids_and_their_bits(tmp_path, capsys):
    features = {
        "image": [encoded(COLOURS, "JPEG")],
        "mask": [encoded(IDS)],
        "palette": [encoded(palette())],
        "instances": [encoded(SIXTEEN)],
    }
    path = written(tmp_path / "a.tfrecord", [example(features)] * 2)
    sample = open_records(path, decode=pasted(path, capsys))[0]
    assert sample["image"].shape == (30, 40, 3)
    for name, expected in {"mask": IDS, "palette": IDS, "instances": SIXTEEN}.items():
        np.testing.assert_array_equal(sample[name][..., 0], expected)


def test_a_grey_image_alone_is_no_mask(tmp_path, capsys):
    path = written(tmp_path / "a.tfrecord", [example({"image": [encoded(IDS)]})])
    assert repr(pasted(path, capsys)["image"]) == "ImageDecoder(None)"


def test_boxes_are_read_by_boxes(tmp_path, capsys):
    text, ids = "image/object/class/text", "image/object/id"
    given = [np.array([[0.1, 0.1, 0.6, 0.8]] * count).reshape(-1, 4) for count in (2, 1, 3)]
    records = [
        detection(
            npy(gradient(20, 30)), each, **{text: [b"cat"] * len(each), ids: [b"\xff"] * len(each)}
        )
        for each in given
    ]
    path = written(tmp_path / "a.tfrecord", records)
    decode = pasted(path, capsys)
    assert decode.keys() == {"boxes", "image/encoded"}
    source = open_records(path, decode=decode, outputs=("image/encoded", "boxes"))
    with SafeSequence(source, 3, collate=pad((None, -1))) as batches:
        _, targets = batches[0]
    assert targets["boxes"].shape == (3, 3, 4)
    assert (targets["classes"] >= 0).sum(1).tolist() == [2, 1, 3]
