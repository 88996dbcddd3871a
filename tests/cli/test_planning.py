"""``adapters plan`` as it is typed: what it prints, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from adapters import RecordError, RecordWriter, pack
from adapters.cli import planning
from tests.packing.materials import folder, jpeg

WORDS = ["--batch-size", "128", "--example-bytes", "64KB", "--examples", "1281167"]
MEASURED = [*WORDS, "--step-ms", "10"]
KNOWN = ["--model", "resnet50", "--device", "v100"]


@pytest.fixture
def plan(say: Any) -> Any:
    """Runs the command: what it prints, by the first words of each line."""

    def said(*words: Any) -> dict[str, str]:
        status, output, errors = say("plan", *words)
        assert (status, errors) == (0, "")
        rows = (line.split("  ", 1) for line in output.splitlines() if line)
        return {name: text.strip() for name, text in rows}

    return said


@pytest.fixture
def images(tmp_path: Path) -> Path:
    path = tmp_path / "train.tfrecord"
    pack([(jpeg(number), number) for number in range(3)], path, format="tfrecord")
    return path


def test_plan_of_the_published_example(plan):
    lines = plan(*WORDS, "--step-ms", 87, "--gpus", 4)
    assert lines["t, a step of n"] == "0.087 s for n 128; measured, as given"
    assert lines["n / t"] == "1,471 examples/s for a GPU"
    assert lines["in all"] == "5,885 examples/s for 4 GPUs x 1 experiment"
    assert lines["a file an example"] == "5,885 IOPS of 64 KiB, 367.8 MiB/s"
    assert lines["packed records"].startswith("367.8 IOPS of 1 MiB, 367.8 MiB/s; in random order")
    assert lines["shards"] == "79 of 1 GiB: adapters pack --shard-bytes 1024MB"
    assert lines["requirement"] == "99% of the mini-batches of 128 within 0.087 s"
    nfs = lines["NFS, shared"].split("  ")
    assert [word.strip() for word in nfs if word][2:4] == ["too slow", "at best"]


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        ([], "78.2 GiB; give --memory to learn whether the page cache keeps it"),
        (["--memory", "1TB"], "78.2 GiB, fits the 75% of 1 TiB that are counted on: "),
        (["--memory", "64GB"], "78.2 GiB, doesn't fit the 75% of 64 GiB that are counted on: "),
    ],
)
def test_plan_of_the_page_cache(plan, memory, said):
    assert plan(*WORDS, *KNOWN, *memory)["data set"].startswith(said)


def test_plan_of_large_examples(plan):
    words = ["--batch-size", 100, "--step-ms", 100, "--example-bytes", "3MB", "--examples", 10_000]
    lines = plan(*words, "--experiments", 3)
    assert lines["packed records"].startswith("3,000.0 IOPS of 3 MiB, 8.789 GiB/s; ")
    assert (lines["an epoch"], lines["shards"][:13]) == (
        "10.0 s of one experiment",
        "30 of 1 GiB: ",
    )
    assert plan(*words, "--gpus", 3)["an epoch"] == "3.3 s of one experiment"


def test_plan_of_workers(plan):
    lines = plan(*WORDS, *KNOWN, "--gpus", 2, "--experiments", 3)
    assert lines["workers"] == "give --measure or --per-core to learn how many"
    assert lines["in all"] == "8,742 examples/s for 2 GPUs x 3 experiments"
    assert lines["n / t"] == "1,457 examples/s for a GPU"
    assert "published: ResNet-50 on Tesla V100" in lines["t, a step of n"]
    lines = plan(*WORDS, *KNOWN, "--per-core", 500)
    assert lines["workers"] == "3, at 500 examples/s a core, as given"
    lines = plan(*WORDS, *KNOWN, "--per-core", 0.25)
    assert lines["workers"].endswith(", at 0.25 examples/s a core, as given")


def test_rate_is_measured_on_records(plan, images, monkeypatch):
    monkeypatch.setattr(planning, "measured_rate", lambda path: {str(images): 100.0}[path])
    lines = plan(*WORDS, *KNOWN, "--measure", images)
    assert lines["workers"] == f"15, at 100 examples/s a core, measured on {images}"


def test_published_examples(say):
    lines = say("plan", "--published")[1].splitlines()
    cells = [re.split("  +", line)[2:] for line in lines]
    assert ["0.0879 s", "0.087 s", "agrees"] in cells
    assert ["5,828.0 IOPS", "5,885 IOPS", "differs: t was printed cut off"] in cells
    unknown = "the printed bandwidth doesn't follow from the IOPS"
    assert ["40 to 80 MB/s", "not at hand", unknown] in cells


def test_rate_of_images(images, tmp_path):
    for path in (images, folder(tmp_path / "photos", 3)):
        assert 0 < planning.measured_rate(str(path), seconds=0.01) < 1e6


def test_rate_of_no_images(tmp_path):
    with RecordWriter(tmp_path / "x.tfrecord", format="tfrecord") as writer:
        writer.write(b"text")
    with pytest.raises(RecordError):
        planning.measured_rate(str(tmp_path / "x.tfrecord"))


def test_rate_of_no_records(tmp_path):
    (tmp_path / "x.rec").write_bytes(b"")
    with pytest.raises(ValueError, match="--measure must name files with records"):
        planning.measured_rate(str(tmp_path / "x.rec"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (KNOWN, "--batch-size, --example-bytes, --examples must be given, or --published alone"),
        (WORDS, "--model and --device, or --step-ms must be given"),
        ([*WORDS, "--model", "vgg16"], "got model 'vgg16', device None"),
        ([*WORDS, "--model", "x", "--device", "v100"], "model must be one of alexnet, .* got 'x'"),
        ([*WORDS, "--model", "vgg16", "--device", "x"], "device must be one of p100, .* got 'x'"),
        ([*MEASURED, "--model", "x"], "model must be one of .* got 'x'; .* and no model"),
        ([*MEASURED, "--device", "x"], "device must be one of .* got 'x'; .* and no device"),
        (["--batch-size", "0"], "must be an integer >= 1, got '0'"),
        (["--gpus", "two"], "must be an integer >= 1, got 'two'"),
        (["--example-bytes", "64XB"], "must be bytes such as 65536 or 64MB, got '64XB'"),
        (["--memory", "0GB"], "must be bytes such as 65536 or 64MB, got '0GB'"),
        (["--step-ms", "0"], "must be a number > 0, got '0'"),
        (["--per-core", "nan"], "must be a number > 0, got 'nan'"),
        (["--per-core", "1", "--measure", "x"], "not allowed with argument"),
    ],
)
def test_words_that_are_refused(say, words, message):
    status, output, errors = say("plan", *words)
    assert (status, output) == (2, "")
    assert re.search(message, errors)
