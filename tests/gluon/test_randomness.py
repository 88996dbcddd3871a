"""Random numbers: functions of seed, epoch and sample, and nobody else's generators disturbed."""

from __future__ import annotations

import itertools
import random
import threading
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import nd
from mxnet.gluon.data import ArrayDataset, DataLoader, Dataset, RandomSampler, SimpleDataset
from mxnet.gluon.data.vision import transforms
from mxnet.gluon.data.vision.transforms import RandomFlipLeftRight

from adapters import ImageDecoder, gluon_loader, open_records
from adapters.gluon.randomness import uniforms
from tests.gluon.data_sets import outline, pixels, values
from tests.gluon.executors import THREADS as ON_THREADS
from tests.gluon.executors import arguments_of, every_quick_executor
from tests.images.pictures import encoded, picture
from tests.sources.record_files import SIZE as RECORDS
from tests.sources.record_files import write_images

INLINE = {"num_workers": 0}
THREADS = {"num_workers": 3, "thread_pool": True}
PROCESSES = {"num_workers": 2, "thread_pool": False}
NUMBERS = np.arange(20_000)

# --- uniforms ---


def drawn(seed: int = 0, epoch: int = 0, numbers: Any = NUMBERS, stream: int = 0, count: int = 3):
    return uniforms(seed, epoch, numbers, stream, count)


def flatness(values: Any, bins: int = 64) -> float:
    """Chi-square of counts in equal bins, in standard deviations from its mean."""
    counts = np.histogram(values, bins, (0, 1))[0]
    expected = values.size / bins
    chi = ((counts - expected) ** 2 / expected).sum()
    return abs(chi - (bins - 1)) / np.sqrt(2 * (bins - 1))


@pytest.mark.parametrize("count", [0, 1, 22])
def test_uniforms_are_float64_of_one_row_for_each_sample(count):
    numbers = drawn(numbers=NUMBERS[:7], count=count)
    assert (numbers.dtype, numbers.shape) == (np.float64, (7, count))


@pytest.mark.parametrize("seed", [0, 1, 2**62, 2**70])
def test_uniforms_lie_in_the_unit_interval(seed):
    numbers = drawn(seed)
    assert 0 <= numbers.min() < 1e-3
    assert 1 - 1e-3 < numbers.max() < 1


@pytest.mark.parametrize("seed", [0, 1, 12345])
@pytest.mark.parametrize("axis", ["draws", "samples", "epochs", "streams"])
def test_uniforms_are_flat_along_each_axis(seed, axis):
    values = {
        "draws": lambda: drawn(seed, numbers=np.array([5]), count=20_000),
        "samples": lambda: drawn(seed, count=1),
        "epochs": lambda: [drawn(seed, epoch, NUMBERS[:9], 0, 1) for epoch in range(2_000)],
        "streams": lambda: [drawn(seed, 0, NUMBERS[:9], stream, 1) for stream in range(2_000)],
    }[axis]()
    values = np.asarray(values).ravel()
    assert abs(values.mean() - 0.5) < 5 * np.sqrt(1 / 12 / values.size)
    assert flatness(values) < 5


def test_uniforms_of_neighbours_are_uncorrelated():
    epochs = [drawn(epoch=epoch, count=2) for epoch in range(2)]
    columns = np.hstack([*epochs, drawn(stream=1, count=2), drawn(seed=1, count=2)])
    shifted = np.vstack([columns[:-1].T, columns[1:].T])
    correlation = np.corrcoef(shifted) - np.eye(len(shifted))
    assert np.abs(correlation).max() < 5 / np.sqrt(len(NUMBERS))


def test_pairs_of_draws_are_flat():
    numbers = drawn(count=2)
    cells = np.floor(numbers * 8) @ [8, 1]
    assert flatness((cells + 0.5) / 64) < 5


@pytest.mark.parametrize("changed", ["seed", "epoch", "stream"])
def test_uniforms_differ_by_each_argument(changed):
    assert not np.isin(drawn(**{changed: 1}), drawn()).any()


def test_uniforms_do_not_depend_on_the_batch():
    numbers = np.array([7, 3, 19_999, 3, -1])
    expected = drawn()[[7, 3, 19_999, 3]]
    np.testing.assert_array_equal(drawn(numbers=numbers)[:4], expected)


def test_fewer_draws_are_the_first_of_more():
    np.testing.assert_array_equal(drawn(count=2), drawn(count=5)[:, :2])


# --- in a loader ---

COUNT = 7


class Drawing(Dataset):
    """A data set that draws."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> float:
        return random.random() + index


def _draws_all(number: Any) -> Any:
    return (
        number,
        random.random(),
        np.random.rand(2),
        nd.random.uniform(shape=(2,)),
        np.random.randint(0, 1000),
    )


TRANSFORMS = {
    "random": lambda number: random.random(),
    "numpy": lambda number: np.random.rand(2),
    "mxnet": lambda number: nd.random.normal(shape=(2,)),
    "all": _draws_all,
}
EACH = pytest.mark.parametrize("name", TRANSFORMS)


def loader_of(name: str, **arguments: Any) -> Any:
    data = ArrayDataset(np.zeros(COUNT) if name != "all" else np.arange(COUNT))
    arguments = {"batch_size": 3, "seed": 11, **INLINE, **arguments}
    return gluon_loader(data.transform(TRANSFORMS[name]), **arguments)


def epochs_of(name: str, count: int = 2, **arguments: Any) -> list[Any]:
    with loader_of(name, **arguments) as loader:
        return [outline(list(loader)) for _ in range(count)]


@EACH
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_seed_repeats_what_a_transform_draws(name, shuffle):
    first = epochs_of(name, shuffle=shuffle)
    random.seed(5)
    np.random.seed(5)
    mx.random.seed(5)
    assert epochs_of(name, shuffle=shuffle) == first


def test_worker_processes_draw_what_inline_is_drawn():
    expected = epochs_of("all", 3, shuffle=True)
    assert epochs_of("all", 3, shuffle=True, **PROCESSES) == expected


def test_a_data_set_and_a_batchify_that_draw_are_the_same_in_worker_processes():
    def batchify(samples: Any) -> Any:
        return np.array(samples), random.random(), np.random.rand(), nd.random.uniform()

    def epochs(workers: Any) -> Any:
        arguments = {"batch_size": 4, "batchify_fn": batchify, "seed": 1}
        with gluon_loader(Drawing(), **arguments, **workers) as loader:
            return [outline(list(loader)) for _ in range(2)]

    first, second = epochs(INLINE)
    assert first != second
    assert epochs(PROCESSES) == [first, second]


@EACH
def test_threads_are_drawn_what_inline_is_drawn(name):
    """MXNet starts each of its threads with the same stream: two samples got the same draws."""
    expected = epochs_of(name, 3, shuffle=True, batch_size=1)
    assert epochs_of(name, 3, shuffle=True, batch_size=1, **THREADS) == expected
    assert len({str(batch) for epoch in expected for batch in epoch[1]}) == 3 * COUNT


def test_with_threads_the_users_generators_are_his_own_while_they_would_read_ahead():
    random.seed(1)
    np.random.seed(1)
    expected = [(random.random(), np.random.rand()) for _ in range(3)]
    random.seed(1)
    np.random.seed(1)
    with loader_of("all", **THREADS) as loader:
        assert [(random.random(), np.random.rand()) for _ in loader] == expected


def test_the_log_says_that_batches_are_made_one_at_a_time_and_what_to_do(caplog):
    with caplog.at_level("INFO", logger="adapters"), loader_of("numpy", **THREADS) as loader:
        list(loader)
    (said,) = [record.message for record in caplog.records if "one at a time" in record.message]
    assert "numpy" in said
    assert "thread_pool=False" in said


def test_threads_make_the_batches_of_functions_that_draw_nothing():
    names = set()

    def named(number: Any) -> Any:
        names.add(threading.current_thread().name.split("_")[0])
        return number

    with gluon_loader(ArrayDataset(NUMBERS[:9]).transform(named), 2, **THREADS) as loader:
        assert len(list(loader)) == 5
    assert names == {"adapters-worker"}


@pytest.mark.parametrize(
    "block",
    [
        transforms.RandomColorJitter(0.5, 0.5, 0.5, 0.5),
        transforms.RandomLighting(0.5),
        transforms.RandomApply(transforms.Cast("float64")),
        transforms.RandomFlipLeftRight(),
        transforms.RandomResizedCrop(3),
    ],
    ids=lambda block: type(block).__name__,
)
def test_a_seed_repeats_what_mxnets_own_blocks_draw(block):
    # Of an even size: MXNet's flips leave what is in the middle of an odd one to chance.
    images = SimpleDataset([nd.array(image, dtype="float32") for image in pixels(6, 4, 4)])

    def epochs() -> Any:
        with gluon_loader(images.transform(block), 1, seed=3, **INLINE) as loader:
            return [outline(list(loader)) for _ in range(2)]

    first, second = epochs()
    assert first != second
    assert epochs() == [first, second]


@EACH
def test_epochs_seeds_and_loaders_without_a_seed_differ(name):
    one, two = epochs_of(name)
    outlines = [one, two, *epochs_of(name, 1, seed=12)]
    outlines += [epochs_of(name, 1, seed=None)[0] for _ in range(2)]
    assert all(first != second for first, second in itertools.combinations(outlines, 2))


@EACH
def test_samples_differ(name):
    with loader_of(name) as loader:
        member = (lambda batch: batch[2]) if name == "all" else (lambda batch: batch)
        rows = np.concatenate([member(batch).asnumpy().ravel() for batch in loader])
    assert len(set(rows.tolist())) == rows.size


@pytest.mark.parametrize("name", ["random", "numpy"])
def test_what_a_sample_draws_depends_neither_on_its_batch_nor_on_the_order(name):
    def rows(**arguments: Any) -> Any:
        data = ArrayDataset(np.arange(COUNT)).transform(lambda n: (n, TRANSFORMS[name](n)))
        with gluon_loader(data, seed=2, **INLINE, **arguments) as loader:
            numbers, drawn = zip(*([each.asnumpy() for each in batch] for batch in loader))
        return np.concatenate(drawn)[np.argsort(np.concatenate(numbers))]

    expected = rows(batch_size=COUNT)
    np.testing.assert_array_equal(rows(batch_size=2), expected)
    np.testing.assert_array_equal(rows(batch_size=3, shuffle=True), expected)


@EACH
def test_inline_the_users_generators_are_put_back(name):
    before = random.getstate(), np.random.get_state()
    epochs_of(name)
    assert random.getstate() == before[0]
    np.testing.assert_equal(np.random.get_state(), before[1])


def test_between_two_batches_the_users_generators_are_his_own():
    random.seed(1)
    np.random.seed(1)
    expected = [(random.random(), np.random.rand()) for _ in range(3)]
    random.seed(1)
    np.random.seed(1)
    with loader_of("all") as loader:
        assert [(random.random(), np.random.rand()) for _ in loader] == expected


def test_after_an_exception_the_users_generators_are_put_back():
    def failing(number: Any) -> Any:
        return random.random() / np.random.rand() / 0

    before = random.getstate(), np.random.get_state()
    data = ArrayDataset([1.0]).transform(failing)
    with gluon_loader(data, 1, seed=0, **INLINE) as loader, pytest.raises(ZeroDivisionError):
        list(loader)
    assert random.getstate() == before[0]
    np.testing.assert_equal(np.random.get_state(), before[1])


@pytest.mark.parametrize("name", ["random", "numpy", "quiet"])
def test_a_transform_that_does_not_draw_from_mxnets_generator_leaves_it_alone(name):
    function = TRANSFORMS.get(name, lambda number: number + 1)

    def drawn_after(iterate: bool) -> Any:
        mx.random.seed(9)
        if iterate:
            data = ArrayDataset(np.zeros(COUNT)).transform(function)
            with gluon_loader(data, 2, shuffle=True, **INLINE) as loader:
                assert len(list(loader)) == 4
        return mx.nd.random.uniform(shape=3).asnumpy().tolist()

    assert drawn_after(True) == drawn_after(False)


def test_after_a_transform_that_draws_from_mxnets_generator_the_users_seed_still_counts():
    def drawn_after(seed: int) -> Any:
        mx.random.seed(seed)
        epochs_of("mxnet")
        return mx.nd.random.uniform(shape=3).asnumpy().tolist()

    assert drawn_after(9) == drawn_after(9) != drawn_after(10)


# --- functions that were imported by name ---


@pytest.mark.parametrize(
    "draw", [np.random.rand, random.random], ids=["numpy.random.rand", "random.random"]
)
def test_a_function_imported_by_name_is_seeded_in_processes(draw):
    data = SimpleDataset(list(np.zeros((32, 1)))).transform(lambda sample: sample + draw())

    def epochs(**arguments: Any) -> list[float]:
        with gluon_loader(data, 4, seed=3, **arguments) as loader:
            return [float(x) for _ in range(2) for b in loader for x in b.asnumpy().ravel()]

    drawn_there = epochs(**PROCESSES)
    assert drawn_there == epochs(**INLINE)
    assert len(set(drawn_there)) == 64


# --- without a seed ---

SIZE = 23
FEW = np.arange(SIZE)


def state() -> Any:
    return np.random.get_state(legacy=False)


@every_quick_executor
def test_numpys_seed_before_the_loader_repeats_its_passes_and_two_passes_differ(executor):
    found = []
    for _ in range(2):
        np.random.seed(0)
        with gluon_loader(FEW, 4, shuffle=True, **arguments_of(executor)) as loader:
            found.append([values(loader), values(loader)])
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]


def test_a_loader_takes_one_number_when_it_is_made_and_none_later():
    np.random.seed(1)
    np.random.randint(1 << 31)
    after = state()
    np.random.seed(1)
    with gluon_loader(FEW, 4, shuffle=True, num_workers=0) as loader:
        np.testing.assert_equal(state(), after)
        assert values(loader) != values(loader)
        loader.peek()
    np.testing.assert_equal(state(), after)


def test_a_loader_with_a_seed_or_with_nothing_random_takes_nothing():
    before = state()
    with gluon_loader(FEW, 4, num_workers=0) as loader:
        assert len(values(loader)) == 6
    with gluon_loader(FEW, 4, shuffle=True, seed=1, num_workers=0) as loader:
        assert len(values(loader)) == 6
    np.testing.assert_equal(state(), before)


@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
def test_without_shuffle_the_order_is_that_of_mxnets_loader(last_batch):
    stock = DataLoader(FEW, 4, last_batch=last_batch)
    with gluon_loader(FEW, 4, last_batch=last_batch, num_workers=0) as loader:
        assert [values(loader) for _ in range(3)] == [values(stock) for _ in range(3)]


def _drawn(number: Any) -> Any:
    return number, random.random(), np.random.rand(), mx.nd.random.uniform(shape=(1,))


def _records(folder: Any) -> Any:
    contents = [encoded(picture(20, 30), "JPEG")] * RECORDS
    path = write_images(folder / "a.rec", "recordio", contents)
    return open_records(path, decode=ImageDecoder(8, crop="random", flip=True))


DRAWING: dict[str, Any] = {
    "a transform": lambda folder: ArrayDataset(FEW).transform(_drawn),
    "a block": lambda folder: ArrayDataset(mx.nd.array(pixels(), dtype="uint8")).transform(
        RandomFlipLeftRight()
    ),
    "a decoder": _records,
}


@pytest.mark.parametrize("order", [{}, {"shuffle": True}, {"last_batch": "rollover"}], ids=str)
@pytest.mark.parametrize("name", DRAWING)
def test_numpys_seed_repeats_what_is_drawn_and_passes_and_loaders_differ(name, order, tmp_path):
    data = DRAWING[name](tmp_path)

    def passes(executor: str = "inline") -> list[Any]:
        with gluon_loader(data, 4, **order, **arguments_of(executor)) as loader:
            found = [outline(list(loader)) for _ in range(2)]
            assert found[0] != found[1]
            return found

    np.random.seed(3)
    first, other = passes(), passes()
    assert first != other
    np.random.seed(3)
    assert passes() == first
    assert passes() == other


@pytest.mark.parametrize("name", ["a transform", "a decoder"])
def test_what_is_drawn_is_the_same_for_every_kind_of_worker(name, tmp_path):
    data, found = DRAWING[name](tmp_path), []
    for executor in ("inline", ON_THREADS, "processes-1"):
        np.random.seed(3)
        with gluon_loader(data, 4, **arguments_of(executor)) as loader:
            found.append([outline(list(loader)) for _ in range(2)])
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.parametrize("seed", [None, 1])
def test_the_second_of_a_pair_of_normal_numbers_stays(seed):
    """NumPy keeps it beside the generator's own state."""
    data = DRAWING["a transform"](None)
    np.random.seed(9)
    np.random.normal()
    with gluon_loader(data, 4, num_workers=0, seed=seed) as loader:
        assert outline(list(loader)) != outline(list(loader))
    assert np.random.normal() == np.random.RandomState(9).normal(size=2)[1]


def test_a_sampler_that_draws_gives_what_it_gives_mxnets_loader():
    np.random.seed(8)
    stock = DataLoader(FEW, 4, sampler=RandomSampler(SIZE))
    expected = [values(stock) for _ in range(2)]
    with gluon_loader(FEW, 4, sampler=RandomSampler(SIZE), num_workers=0) as loader:
        np.random.seed(8)
        assert [values(loader) for _ in range(2)] == expected
