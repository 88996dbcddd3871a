"""Features of lengths that vary, in batches: an error names the feature, and what fills it up."""

from __future__ import annotations

import numpy as np
import pytest

from adapters import Feature, RecordWriter, SafeSequence, open_records, pad

tf = pytest.importorskip("tensorflow")

KINDS = {"int64": "int64_list", "float32": "float_list", "string": "bytes_list"}
GIVEN = {
    "int64": 'Feature("int64", (None,), default=0)',
    "float32": 'Feature("float32", (None,), default=0)',
    "string": 'Feature(bytes, (None,), default=b"")',
}


def written(tmp_path, dtype: str) -> str:
    path = tmp_path / "train.tfrecord"
    values = {"int64": 7, "float32": 0.5, "string": b"a"}[dtype]
    with RecordWriter(path, format="tfrecord") as writer:
        for count in (1, 3, 2, 4):
            feature = tf.train.Feature()
            getattr(feature, KINDS[dtype]).value.extend([values] * count)
            label = tf.train.Feature(int64_list=tf.train.Int64List(value=[count]))
            features = tf.train.Features(feature={"boxes": feature, "label": label})
            writer.write(tf.train.Example(features=features).SerializeToString())
    return str(path)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("kind", ["VarLenFeature", "RaggedFeature", "Feature"])
def test_the_error_names_the_feature_and_what_fills_it_up(tmp_path, dtype, kind):
    ours = bytes if dtype == "string" else dtype
    given = Feature(ours, (None,))
    if kind != "Feature":
        given = getattr(tf.io, kind)(dtype=getattr(tf, dtype))
    path = written(tmp_path, dtype)
    decode = {"boxes": given, "label": Feature("int64")}
    with (
        SafeSequence(open_records(path, decode=decode), 4) as batches,
        pytest.raises(ValueError, match="equal shapes") as caught,
    ):
        batches[0]
    remedy = f"'boxes': {GIVEN[dtype]}"
    assert remedy in str(caught.value)
    assert "pad()" in str(caught.value)
    remedied = {**decode, **eval("{" + remedy + "}", {"Feature": Feature})}
    with SafeSequence(open_records(path, decode=remedied), 4) as batches:
        assert batches[0]["boxes"].shape == (4, 4)
    if dtype != "string":
        records = open_records(path, decode=decode)
        with SafeSequence(records, 4, collate=pad(0)) as batches:
            assert np.asarray(batches[0]["boxes"]).shape == (4, 4)


def test_so_it_is_in_gluon(tmp_path):
    pytest.importorskip("adapters.gluon")
    from adapters import gluon_loader

    decode = {"boxes": Feature("float32", (None,)), "label": Feature("int64")}
    records = open_records(written(tmp_path, "float32"), decode=decode, outputs=("boxes", "label"))
    with gluon_loader(records, 4) as loader, pytest.raises(ValueError, match=r"boxes.*default=0"):
        next(iter(loader))
