"""Decoded samples from a cache: the same, whoever filled it, and whatever happens meanwhile."""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import ImageDecoder, RecordError, open_records
from adapters.images import kernel
from adapters.sources import opening
from tests.forking import forks
from tests.images.pictures import encoded, npy, picture
from tests.sources.record_files import jpeg_file, write_images
from tests.sources.test_beforehand import batch, cache, same

by_the_kernel = pytest.mark.skipif(
    kernel.load() is None, reason="the kernel isn't built, or switched off"
)


@pytest.mark.parametrize("labels", [[1, 2.0, 3, 4.0], [0.5, 2, 3.0, 2**40], [[1, 2], [3.0, 4.0]]])
@pytest.mark.parametrize("first", ["batch", "samples"])
def test_labels_are_those_of_the_file_whoever_filled_the_cache(tmp_path, labels, first):
    """A batch has them in the first one's dtype; samples have each its own."""
    given = [np.array(each, np.float32 if isinstance(each[0], float) else np.int64)
             if isinstance(each, list) else each for each in labels]  # fmt: skip
    images = [encoded(picture(9, 9), "PNG")] * len(labels)
    path = write_images(tmp_path / "a.tfrecord", "tfrecord", images, given)
    plain = open_records(path, decode=ImageDecoder(4))
    kept = open_records(path, decode=ImageDecoder(4), cache=cache(tmp_path))
    numbers = np.arange(len(labels))
    if first == "batch":
        same(batch(kept, numbers=numbers), batch(plain, numbers=numbers))
    for again in (kept, open_records(path, decode=ImageDecoder(4), cache=cache(tmp_path))):
        for one, other in zip(again[:], plain[:], strict=True):
            assert type(one[1]) is type(other[1])
            np.testing.assert_array_equal(one[1], other[1], strict=True)
        same(batch(again, numbers=numbers), batch(plain, numbers=numbers))


@by_the_kernel
def test_a_jpeg_that_is_enlarged_twice_differs_little(tmp_path):
    """As the documentation says; each epoch has the same."""
    path = jpeg_file(tmp_path, "recordio")
    decoder = ImageDecoder(64, crop="random", resize_short=40)
    kept = open_records(path, decode=decoder, cache=cache(tmp_path))
    found = batch(kept)
    same(batch(kept), found)
    differs = abs(batch(open_records(path, decode=decoder))[0].astype(int) - found[0])
    assert differs.max() in (1, 2)
    assert (differs > 0).mean() < 0.02


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_that_is_replaced_while_it_is_opened(tmp_path, monkeypatch, compressed):
    """What is kept is that of the file that was opened, and the other one is another source."""
    folders = [tmp_path / "old", tmp_path / "new"]
    for folder, shade in zip(folders, (10, 90)):
        folder.mkdir()
        images = [npy(np.full((4, 5, 3), shade + n, np.uint8)) for n in range(3)]
        path = write_images(folder / "a.tfrecord", "tfrecord", images)
        if compressed:
            path.with_suffix(".idx").unlink()
            Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    (path,) = [each for each in folders[0].iterdir() if each.suffix != ".idx"]
    kept_records = opening.kept_records

    def replaced(*given: Any) -> Any:
        os.replace(folders[1] / path.name, path)
        return kept_records(*given)

    with monkeypatch.context() as patched:
        patched.setattr(opening, "kept_records", replaced)
        first = open_records(path, decode="image", cache=cache(tmp_path))
    first[:] if not compressed else first[0]
    first.close()
    found = open_records(path, decode="image", cache=cache(tmp_path))[:]
    assert [image.max() for image, _ in found] == [90, 91, 92]


@by_the_kernel
def test_a_process_without_the_kernel_fills_a_file_of_its_own(tmp_path, monkeypatch):
    """Its values may differ by 1; the source was opened, and pickled, where there was one."""
    path = jpeg_file(tmp_path, "recordio")
    kept = open_records(path, decode=ImageDecoder(16), cache=cache(tmp_path))
    worker = pickle.loads(pickle.dumps(kept))
    batch(kept)
    monkeypatch.setattr(kernel, "load", lambda: None)
    batch(worker)
    assert len(cache(tmp_path).samples()) == 2


@forks
def test_a_process_that_is_forked_while_the_file_is_opened_opens_it(tmp_path):
    path = jpeg_file(tmp_path, "recordio")
    kept = open_records(path, decode=ImageDecoder(16), cache=cache(tmp_path))
    with kept._kept._opening:
        child = os.fork()
        if not child:
            try:
                os._exit(0 if kept._kept._opening.acquire(blocking=False) else 1)
            finally:
                os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_what_was_read_without_verifying_is_not_given_to_who_verifies(tmp_path):
    images = [npy(picture(8, 8)) for _ in range(4)]
    path = write_images(tmp_path / "a.tfrecord", "tfrecord", images, [0] * 4)
    data = bytearray(path.read_bytes())
    data[open_records(path)._files.shards[0].offsets[2] - 60] ^= 8
    path.write_bytes(data)
    damaged = open_records(path, decode="image", verify=False, cache=cache(tmp_path))
    assert len(damaged[:]) == 4
    with open_records(path, decode="image", cache=cache(tmp_path)) as source:
        assert len(source[2:]) == 2
        with pytest.raises(RecordError):
            source[1]
