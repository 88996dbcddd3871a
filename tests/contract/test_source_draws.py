"""What is random in ``source[i]``: drawn again each time, or by the place in a loader's epoch."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, concatenate, open_images, open_records
from tests.contract.front_ends import ALL_WORKERS, FRONT_ENDS, INLINE, batches_of, loader_of
from tests.images.pictures import encoded, picture
from tests.sources.record_files import write_images

COUNT = 8
DECODER = ImageDecoder(8, crop="random_resized", flip=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a record file, and a folder of images."""
    folder = tmp_path_factory.mktemp("files")
    contents = [encoded(picture(20, 30 + n)[:, :30], "JPEG") for n in range(COUNT)]
    write_images(folder / "a.tfrecord", "tfrecord", contents)
    (folder / "photos" / "x").mkdir(parents=True)
    for number, content in enumerate(contents):
        (folder / "photos" / "x" / f"{number}.jpg").write_bytes(content)
    return folder


def sources_of(files: Path) -> dict[str, Any]:
    """Each kind of source that draws."""
    records = open_records(files / "a.tfrecord", decode=DECODER)
    photos = open_images(files / "photos", decode=DECODER)
    return {
        "records": records,
        "photos": photos,
        "selected": photos.select(range(COUNT)),
        "concatenated": concatenate([records.select(range(4)), photos.select(range(4, COUNT))]),
    }


class Pairs:
    """Two views of each image."""

    thread_safe = True

    def __init__(self, source: Any) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, number: int) -> Any:
        return self.source[number][0], self.source[number][0], number


class Fetched(Pairs):
    """The same, a batch at a time."""

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        """Both views of all of them."""
        first, second = (self.source.__getitems__(numbers) for _ in range(2))
        return [(a[0], b[0], number) for a, b, number in zip(first, second, numbers)]


def views(loader: Any, epochs: int = 2) -> list[dict[int, tuple[bytes, bytes]]]:
    """The two views of each sample, for each epoch."""
    found = []
    for _ in range(epochs):
        views = {}
        for one, other, numbers in batches_of(loader):
            for row, number in enumerate(numbers.tolist()):
                views[number] = one[row].tobytes(), other[row].tobytes()
        found.append(views)
    return found


def different(first: Any, second: Any) -> int:
    """How many of the samples differ; two crops of a small image may be alike."""
    return sum(first[number] != second[number] for number in first)


@pytest.mark.parametrize("kind", ["records", "photos", "selected", "concatenated"])
def test_a_program_draws_again_each_time(files, kind):
    source = sources_of(files)[kind]
    assert len({source[2][0].tobytes() for _ in range(9)}) > 4
    assert len({source[2:3][0][0].tobytes() for _ in range(9)}) > 4
    assert len({next(iter(source))[0].tobytes() for _ in range(9)}) > 4
    numbers = [2, 5]
    if hasattr(source, "__getitems__"):
        assert len({source.__getitems__(numbers)[1][0].tobytes() for _ in range(9)}) > 4


def test_the_programs_own_generators_stay_as_they_are(files):
    source = sources_of(files)["records"]
    random.seed(3)
    np.random.seed(3)
    before = random.getstate(), np.random.get_state(legacy=False)["state"]["pos"]
    source[0], source[:3]
    assert (random.getstate(), np.random.get_state(legacy=False)["state"]["pos"]) == before


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("kind", ["records", "photos", "selected", "concatenated"])
def test_a_data_set_over_a_source_draws_by_its_samples(files, front_end, kind):
    data = Pairs(sources_of(files)[kind])
    with loader_of(front_end, data, 3, shuffle=True) as loader:
        first, second = views(loader)
    assert sum(one != other for one, other in first.values()) > COUNT / 2
    assert different(first, second) > COUNT / 2
    with loader_of(front_end, data, 5, shuffle=True) as loader:  # Whatever the batches are.
        assert views(loader) == [first, second]


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize("kind", [Pairs, Fetched])
@pytest.mark.parametrize("workers", ALL_WORKERS)
def test_every_kind_of_worker_draws_alike(files, front_end, kind, workers):
    data = kind(sources_of(files)["photos"])
    with loader_of(front_end, data, 3, shuffle=True) as loader:
        expected = views(loader)
    assert different(*expected) > COUNT / 2
    with loader_of(front_end, data, 3, shuffle=True, workers=workers) as loader:
        assert views(loader) == expected


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_transform_that_reads_a_source_draws_by_its_sample(files, front_end):
    source = sources_of(files)["records"]

    def paired(number: Any) -> Any:
        number = int(number)
        return source[number][0], source[number][0], number

    with loader_of(front_end, list(range(COUNT)), 3, transform=paired) as loader:
        first, second = views(loader)
    assert sum(one != other for one, other in first.values()) > COUNT / 2
    assert different(first, second) > COUNT / 2
    with loader_of(front_end, list(range(COUNT)), 3, transform=paired) as loader:
        assert views(loader) == [first, second]


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_what_makes_a_batch_draws_by_the_batch(files, front_end):
    source = sources_of(files)["records"]

    def collate(numbers: list[Any]) -> Any:
        rows = [source[int(number)][0] for number in numbers]
        return np.stack(rows), np.stack(rows), np.array([int(number) for number in numbers])

    def batch_transform(batch: Any) -> Any:
        numbers = batch[2]
        taken = numbers.asnumpy() if hasattr(numbers, "asnumpy") else numbers
        return batch[0], np.stack([source[int(number)][0] for number in taken]), numbers

    arguments: Any = {"collate": collate, "batch_transform": batch_transform}
    with loader_of(front_end, list(range(COUNT)), 3, **arguments) as loader:
        first, second = views(loader)
    assert sum(one != other for one, other in first.values()) > COUNT / 2
    assert different(first, second) > COUNT / 2
    with loader_of(front_end, list(range(COUNT)), 3, **arguments) as loader:
        assert views(loader) == [first, second]


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_loader_within_a_sample_leaves_its_draws_alone(files, front_end):
    source = sources_of(files)["records"]

    class Within(Pairs):
        """Reads another loader between its draws."""

        within: Any = None

        def __getitem__(self, number: int) -> Any:
            first = source[number][0]
            if self.within is not None:
                for _ in loader_of(front_end, self.within, 2):
                    pass
            return first, source[number][0], number

    data = Within(source)
    with loader_of(front_end, data, 3) as loader:
        expected = views(loader)
    data.within = Pairs(source)
    with loader_of(front_end, data, 3) as loader:
        assert views(loader) == expected


def test_a_pydataset_draws_by_its_batches(files):
    import keras

    source = sources_of(files)["records"]

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]
        """Both views, a batch at a time."""

        def __len__(self) -> int:
            return COUNT // 2

        def __getitem__(self, index: int) -> Any:
            numbers = np.arange(2 * index, 2 * index + 2)
            one, other = (np.stack([source[n][0] for n in numbers]) for _ in range(2))
            return one, other, numbers

    with loader_of("keras", Batches(), None) as loader:
        first, second = views(loader)
    assert different(first, second) > COUNT / 2
    with loader_of("keras", Batches(), None, workers="2 threads") as loader:
        assert views(loader) == [first, second]


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_afterwards_the_program_draws_by_nothing_again(files, front_end):
    source = sources_of(files)["records"]

    class Fails(Pairs):
        """Its fourth sample can't be read."""

        def __getitem__(self, number: int) -> Any:
            if number == 3:
                source[number]
                raise ValueError("broken")
            return super().__getitem__(number)

    with loader_of(front_end, Fails(source), 4, workers=INLINE) as loader:
        with pytest.raises(ValueError, match="broken") as caught:
            next(iter(loader))
        assert len({source[2][0].tobytes() for _ in range(9)}) > 4
        del caught
