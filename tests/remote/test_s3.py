"""The real API of S3, by moto's server: listing, ranges, versions, credentials."""

from __future__ import annotations

import pytest

from adapters import RecordError, SafeSequence, open_images, open_records
from adapters.remote import clients
from tests.remote.conftest import payloads, written
from tests.sources.image_folders import put


@pytest.fixture(scope="module")
def endpoint():
    moto = pytest.importorskip("moto.server", reason="moto[server] speaks S3 to these tests")
    patch = pytest.MonkeyPatch()
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    patch.setenv("AWS_ACCESS_KEY_ID", "an-id")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret")
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    clients.forget()
    yield f"http://{host}:{port}"
    clients.forget()
    patch.undo()
    server.stop()


@pytest.fixture
def bucket(endpoint, tmp_path):
    boto3 = pytest.importorskip("boto3", reason="boto3 writes what these tests read")
    found = boto3.client("s3", endpoint_url=endpoint)
    found.create_bucket(Bucket="bucket")
    for place, name in enumerate(("train-0", "train-1")):
        path = written(tmp_path, "tfrecord", payloads(20 + place), name)
        for each in (path, path.with_suffix(".idx")):
            found.upload_file(str(each), "bucket", f"data/{each.name}")
    return found


@pytest.mark.parametrize("user", ["", "an-id:a%2Fsecret@"])
def test_s3_glob(bucket, user, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if user else ():
        monkeypatch.delenv(name)
    with open_records(f"s3://{user}bucket/data/train-*.tfrecord") as source:
        assert source[:] == payloads(20) + payloads(21)
        assert source.__getitems__([40, 3]) == [payloads(21)[20], payloads(20)[3]]


@pytest.mark.parametrize("key", ["odd//a.tfrecord", "odd/../a.tfrecord", "odd/a\tb.tfrecord"])
def test_s3_key_that_cannot_be_read_is_named(bucket, key):
    bucket.put_object(Bucket="bucket", Key=key, Body=b"")
    try:
        for opened, url in ((open_records, "odd/*.r"), (open_images, "odd/"), (open_records, key)):
            with pytest.raises(ValueError, match=r"^s3://bucket: keys .*odd/.*: correct the URL"):
                opened(f"s3://bucket/{url}")
    finally:
        bucket.delete_object(Bucket="bucket", Key=key)


def test_s3_replaced_object(bucket):
    source = open_records("s3://bucket/data/train-0.tfrecord")
    bucket.put_object(Bucket="bucket", Key="data/train-0.tfrecord", Body=b"another")
    source._files.shards[0].storage.close()
    with pytest.raises(RecordError, match="changed since"):
        source[10]


@pytest.mark.parametrize(
    ("name", "said"), [("/data/none.rec", ""), ("/data", " ends with a slash"), ("", " ends with")]
)
def test_s3_object_that_is_missing(bucket, name, said):
    with pytest.raises(FileNotFoundError, match=f"No such object.*{said}.*: 's3://bucket{name}'"):
        open_records(f"s3://bucket{name}")


def test_s3_folder_of_images(bucket, tmp_path):
    """The versions that the listing tells are those that come with the objects, and in a cache."""
    put(tmp_path / "photos", "big cat/100% #1.jpg", "big cat/deep/2.jpg", "ant+/3.jpg")
    bucket.put_object(Bucket="bucket", Key="photos/ant+/", Body=b"")  # As consoles make folders.
    for path in (tmp_path / "photos").rglob("*.jpg"):
        bucket.upload_file(str(path), "bucket", f"photos/{path.relative_to(tmp_path / 'photos')}")
    here = open_images(tmp_path / "photos")
    with open_images("s3://bucket/photos", cache=tmp_path / "cache") as there:
        assert there.classes == here.classes == ["ant+", "big cat"]
        assert [there.read(number) for number in range(3)] == [here.read(n) for n in range(3)]
        assert there.sample_bytes == here.sample_bytes
        listed = there.files[:]
    assert open_images(listed).classes == ["ant+", "big cat", "deep"]
    with SafeSequence("s3://bucket/photos/", 3) as sequence:
        assert sequence[0][0].shape == (3, 20, 30, 3)
    again = open_images("s3://bucket/photos/", cache=tmp_path / "cache")
    bucket.delete_object(Bucket="bucket", Key="photos/ant+/3.jpg")
    assert again.read(0) == here.read(0)
    bucket.put_object(Bucket="bucket", Key="photos/ant+/3.jpg", Body=b"another")
    there = open_images("s3://bucket/photos/")
    assert there.read(0) == b"another"
    bucket.put_object(Bucket="bucket", Key="photos/ant+/3.jpg", Body=b"a third")
    with pytest.raises(RecordError, match="version of the object that was listed"):
        there.read(0)
