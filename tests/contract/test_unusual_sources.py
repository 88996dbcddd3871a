"""Sources that aren't arrays or one data set: a right result, or an error with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import Feature, SafeSequence, open_images, open_records, pad, split
from tests.contract.front_ends import NEEDS_MXNET, batches_of, loader_of
from tests.contract.occupancy import Waiting, Where
from tests.contract.views import SCALED_LENGTH, Scaled
from tests.keras.samples import slowly
from tests.sources.example_files import encoded, file_of
from tests.sources.image_folders import put
from tests.sources.record_files import write

sparse = pytest.importorskip("scipy.sparse")


@pytest.fixture
def images(tmp_path):
    return open_images(put(tmp_path, *(f"{a}/{n}.jpg" for a in ("ant", "bee") for n in range(4))))


@pytest.fixture
def records(tmp_path):
    return open_records(write(tmp_path / "bytes.rec", "recordio", map(bytes, zip(range(8)))))


@pytest.mark.parametrize(
    "make", [lambda a: (a, np.arange(8)), lambda a: {"a": a}, lambda a: (a, a)]
)
def test_data_sets_in_a_tuple_are_an_error(images, records, make):
    for data_set in (images, records, records.select(range(4)), Where()):
        with pytest.raises(TypeError, match=r"source\[.*data set.*__getitem__.*open_images"):
            SafeSequence(make(data_set), 4)
    with pytest.raises(TypeError, match=r"concatenate\(\[a, b\]\)"):
        SafeSequence([records, images], 4)


@NEEDS_MXNET
def test_data_sets_in_a_tuple_for_gluon(images):
    with pytest.raises(TypeError, match="ArrayDataset"):
        loader_of("gluon", (images, np.arange(8)), 4)


def test_texts_keep_their_zeros():
    with SafeSequence(([b"a\0", b"b", b"\0"], ["a\0", "b", "\0"]), 3) as batches:
        assert [each.tolist() for each in batches[0]] == [[b"a\0", b"b", b"\0"], ["a\0", "b", "\0"]]


@pytest.mark.parametrize(
    ("format", "front_end", "workers"),
    [
        ("csr_matrix", "keras", "2 processes"),
        ("csr_matrix", "gluon", "auto"),
        ("csr_array", "keras", "auto"),
        ("csc_matrix", "keras", "inline"),
        ("lil_matrix", "keras", "inline"),
    ],
)
def test_sparse_rows_become_dense(format, front_end, workers):
    random = np.random.default_rng(0)
    dense = random.integers(0, 2, (50, 7)) * random.random((50, 7)).astype("float32")
    matrix, labels = getattr(sparse, format)(dense), np.arange(50)
    with loader_of(front_end, (matrix, labels), 8, shuffle=True, workers=workers) as batches:
        seen = []
        for x, y in batches_of(batches):
            assert x.dtype == dense.dtype
            np.testing.assert_array_equal(x, dense[y])
            seen += y.tolist()
    assert sorted(seen) == list(range(50))


def test_sparse_rows_alone_named_and_in_parts(front_end):
    dense = np.eye(10, dtype="float32")
    matrix, labels = sparse.csr_matrix(dense), np.arange(10)
    for alone in (matrix, sparse.dok_array(dense)):
        with loader_of(front_end, alone, 10) as loader:
            np.testing.assert_array_equal(next(batches_of(loader)), dense)
    with SafeSequence({"x": matrix, "y": labels}, 10) as batches:
        np.testing.assert_array_equal(batches[0]["x"], dense)
    first, _ = split((matrix, labels), [0.5, 0.5])
    x, y = SafeSequence(first, 5)[0]
    np.testing.assert_array_equal(x, dense[y])


def test_split_stratifies_combinations_of_labels():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, (400, 3))
    for given in (labels, sparse.csr_matrix(labels), labels.tolist()):
        parts = split((np.arange(400), labels), [0.5, 0.5], stratify=given)
        found = [SafeSequence(part, 200)[0][1] for part in parts]
        counts = [np.unique(each, axis=0, return_counts=True)[1] for each in found]
        assert np.abs(counts[0] - counts[1]).max() <= 1


def test_split_by_labels_of_several_lengths():
    remedy = r"stratify must .* \(samples, labels\).*MultiLabelBinarizer"
    with pytest.raises(ValueError, match=remedy):
        split(np.arange(3), [0.5, 0.5], stratify=[[1], [1, 2], [3]])
    with pytest.raises(ValueError, match=r"stratify must .*\(3, labels\)"):
        split(np.arange(3), [0.5, 0.5], stratify=np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("encoding", "end"), [("utf-8-sig", "\n"), ("utf-16", "\n"), ("utf-8-sig", "\r\n")]
)
def test_table_may_begin_with_a_mark(images, tmp_path, encoding, end):
    for name, lines in {
        "t.lst": ["0\t1\tant/0.jpg", "1\t0\tbee/0.jpg"],
        "t.csv": ["filename,class", "ant/0.jpg,1", "bee/0.jpg,0"],
    }.items():
        (tmp_path / name).write_bytes((end.join(lines) + end).encode(encoding))
        found = open_images(tmp_path / name)
        assert found.labels.tolist() == [1, 0]
        assert [len(sample) for sample in found] == [2, 2]


@pytest.mark.parametrize("dtype", ["bool", "int64", "Int64", "boolean"])
def test_columns_of_numbers_have_one_dtype(dtype):
    """As those of ``pandas.get_dummies``; NumPy makes objects of them."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [0.5, 2.0], "b": pandas.Series([1, 0]).astype(dtype)})
    with SafeSequence((frame, np.arange(2)), 2) as batches:
        expected = np.array([[0.5, 1], [2, 0]])
        np.testing.assert_array_equal(batches[0][0], expected, strict=True)


def test_dict_of_numbers_has_samples(front_end):
    """As a data set of PyTorch and Gluon; one of texts has columns."""
    samples = {number: np.full(3, number) for number in (1, 0, 2, 4, 3)}
    assert [len(part) for part in split(samples, [0.4, 0.6])] == [2, 3]
    with loader_of(front_end, samples, 4) as loader:
        assert next(batches_of(loader))[:, 0].tolist() == [0, 1, 2, 3]


def test_table_of_two_columns_of_files(images, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"image": ["ant/0.jpg"] * 2, "mask": ["bee/0.jpg"] * 2, "n": [0, 1]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    pairs = r"open_images\(list\(zip\(table\['image'\], table\['mask'\]\)\)\)"
    for where in (frame, tmp_path / "t.csv"):
        for columns in (None, ("image", "mask"), ("image", "n", "mask")):
            remedy = pairs if columns is None else r"decode=\(ImageDecoder.*nearest"
            with pytest.raises(ValueError, match=remedy):
                open_images(where, columns=columns, root=tmp_path)


def model(*outputs: str) -> Any:
    import keras

    inputs = keras.Input((4,))
    made = {name: keras.layers.Dense(3, activation="softmax")(inputs) for name in outputs}
    found = keras.Model(inputs, made if len(outputs) > 1 else made[outputs[0]])
    found.compile("sgd", "sparse_categorical_crossentropy")
    return found


X, Y = np.ones((8, 4), "float32"), np.arange(8) % 3
SEVERAL = (ValueError, r"class_weight must .*batch_transform")


@pytest.mark.parametrize(
    ("outputs", "weights", "error"),
    [
        ("ab", {"a": {0: 1.0}, "b": {0: 2.0}}, SEVERAL),
        ("ab", {0: 1.0, 1: 2.0, 2: 3.0}, SEVERAL),
        ("ab", {"a": [1.0, 2.0, 3.0]}, SEVERAL),
        ("a", [1.0, 2.0, 3.0], (TypeError, r"class_weight must .*dict\(enumerate\(weights\)\)")),
    ],
)
def test_class_weights_that_keras_refuses_have_a_remedy(outputs, weights, error):
    kind, message = error
    y = dict.fromkeys(outputs, Y) if len(outputs) > 1 else Y
    with SafeSequence((X, y), 4) as batches, pytest.raises(kind, match=message):
        model(*outputs).fit(batches, class_weight=weights, verbose=0)


def test_class_weights_as_sample_weights():
    """As the remedy has it: a loss that is weighted by 0 is 0."""
    weights = {"a": np.zeros(3), "b": np.zeros(3)}

    def weighted(batch):
        return (*batch, {name: np.take(weights[name], y) for name, y in batch[1].items()})

    with SafeSequence((X, {"a": Y, "b": Y}), 4, batch_transform=weighted) as batches:
        assert model("a", "b").fit(batches, verbose=0).history["loss"] == [0.0]


# --- lengths that vary ---


VALUES = {"int64": 7, "float32": 0.5, "string": b"a"}
GIVEN = {
    "int64": 'Feature("int64", (None,), default=0)',
    "float32": 'Feature("float32", (None,), default=0)',
    "string": 'Feature(bytes, (None,), default=b"")',
}


def written(tmp_path, dtype: str) -> Path:
    counts = (1, 3, 2, 4)
    records = ({"boxes": [VALUES[dtype]] * count, "label": [count]} for count in counts)
    return file_of(tmp_path, map(encoded, records))


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("kind", ["VarLenFeature", "RaggedFeature", "Feature"])
def test_lengths_that_vary_name_the_feature(tmp_path, dtype, kind):
    ours = bytes if dtype == "string" else dtype
    given = Feature(ours, (None,))
    if kind != "Feature":
        tf = pytest.importorskip("tensorflow")
        given = getattr(tf.io, kind)(dtype=getattr(tf, dtype))
    path = written(tmp_path, dtype)
    decode = {"boxes": given, "label": Feature("int64")}
    sequence = SafeSequence(open_records(path, decode=decode), 4)
    with sequence, pytest.raises(ValueError, match="equal shapes") as caught:
        sequence[0]
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


@NEEDS_MXNET
def test_lengths_that_vary_in_gluon(tmp_path):
    decode = {"boxes": Feature("float32", (None,)), "label": Feature("int64")}
    records = open_records(written(tmp_path, "float32"), decode=decode, outputs=("boxes", "label"))
    loader = loader_of("gluon", records, 4)
    with loader, pytest.raises(ValueError, match=r"boxes.*default=0"):
        next(iter(loader))


# --- loaders within loaders ---


class Sums:
    def __init__(self, workers: Any) -> None:
        self.workers = workers

    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: int) -> np.float32:
        numbers = np.arange(40, dtype="float32") + number
        with SafeSequence(numbers, 4, batch_transform=slowly, workers=self.workers) as sequence:
            return np.float32(sum(float(np.sum(batch)) for batch in sequence))


class Firsts(Sums):
    def __getitem__(self, number: int) -> Any:
        with SafeSequence(Waiting(), 4, workers=2) as sequence:
            return next(iter(sequence))[:, 0]


@pytest.mark.parametrize(("outer", "inner"), [(0, "auto"), (2, 2), ("auto", 0), ("auto", "auto")])
def test_loader_within_a_loader(outer, inner):
    with SafeSequence(Sums(inner), 1, workers=outer) as sequence:
        assert [batch.tolist() for batch in sequence] == [[780.0], [820.0]]


@pytest.mark.parametrize("outer", [0, 2, "auto"])
def test_loader_within_a_loader_closed_early(outer, caplog):
    with SafeSequence(Firsts(2), 1, workers=outer) as sequence:
        assert [batch.tolist() for batch in sequence] == [[[0, 1, 2, 3]]] * 2
    assert "is left there" not in caplog.text


# --- data sets that change ---


@pytest.fixture
def scaled(tmp_path):
    (tmp_path / "numbers").write_bytes(bytes(range(SCALED_LENGTH)))
    data_set = Scaled(tmp_path / "numbers")
    yield data_set
    if data_set.file is not None:
        data_set.file.close()


def numbers_of(loader: Any) -> list[float]:
    return np.concatenate(list(batches_of(loader))).tolist()


@pytest.mark.parametrize(
    ("front_end", "workers", "looked_at"),
    [
        ("keras", "auto", True),
        ("keras", "2 processes", False),
        ("keras", "2 processes", True),
        ("gluon", "inline", True),
        ("gluon", "2 processes", False),
    ],
)
def test_change_before_the_first_pass_counts(front_end, workers, looked_at, scaled):
    with loader_of(front_end, scaled, 8, workers=workers) as loader:
        scaled.factor = 3
        if looked_at:
            scaled[0]
        for _ in range(3):
            assert numbers_of(loader) == [3.0 * number for number in range(SCALED_LENGTH)]


def test_change_after_auto_has_measured_counts(front_end, scaled):
    """Processes have the data set as it was when they started, but never as it was before that."""
    with loader_of(front_end, scaled, 8, workers="auto") as loader:
        batches = batches_of(loader)
        assert next(batches).tolist() == list(range(8))
        scaled.factor = 5
        for _ in range(2):
            list(batches)
            batches = batches_of(loader)
        assert numbers_of(loader) == [5.0 * number for number in range(SCALED_LENGTH)]


def test_change_that_cannot_be_sent_is_computed_inline(front_end, scaled):
    with loader_of(front_end, scaled, 8, workers="2 processes") as loader:
        assert numbers_of(loader) == list(range(SCALED_LENGTH))
        scaled[0]
        scaled.path = str(scaled.path)
        assert numbers_of(loader) == list(range(SCALED_LENGTH))
