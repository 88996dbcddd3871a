"""From a workload to what it requires, and to the published examples, digit by digit."""

from __future__ import annotations

import pytest

from adapters import planning
from adapters.planning import THROUGHPUTS, Storage, published_examples, step_of

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("dataset_bytes", "readers", "shard_bytes"),
    [
        (1, 1, 64 * MIB),
        (4 * 128 * MIB - 1, 1, 64 * MIB),
        (4 * 128 * MIB, 1, 128 * MIB),
        (4 * GIB - 1, 1, 512 * MIB),
        (4 * GIB, 1, GIB),
        (4 * GIB, 2, 512 * MIB),
        (1 << 50, 1, GIB),
        (4 * GIB, 1000, 64 * MIB),
    ],
)
def test_shards_are_four_for_each_reader(dataset_bytes, readers, shard_bytes):
    assert planning.shard_bytes(dataset_bytes, readers) == shard_bytes


# --- storage ---


@pytest.mark.parametrize(
    ("iops", "mib_per_second", "files", "packed"),
    [
        ((1001, 2000), (63, 99), "fits", "fits"),
        ((63, 999), (63, 99), "too slow", "fits"),
        ((63, 1001), (63, 99), "at best", "fits"),
        ((62, 63), (63, 99), "too slow", "at best"),
        ((62, 62), (63, 99), "too slow", "too slow"),
        ((1001, 2000), (62, 63), "at best", "at best"),
        ((1001, 2000), (61, 62), "too slow", "too slow"),
    ],
)
def test_storage_gives_reads_and_bytes(iops, mib_per_second, files, packed):
    """For loose files and packed records: 1,000 or 62.5 IOPS, and 62.5 MiB/s."""
    least, most = (rate * MIB for rate in mib_per_second)
    kind = Storage("a disk", iops, (least, most), "made up")
    assert kind.verdict(1000, 62.5 * MIB) == files
    assert kind.verdict(62.5, 62.5 * MIB) == packed


# --- the published examples ---


def test_published_figures_agree_but_for_known_ones():
    assert all(each.note for each in published_examples() if not each.agrees)
    differing = [(each.subject, each.formula) for each in published_examples() if not each.agrees]
    assert differing == [
        ("ResNet-50, V100, n 128", "n / t, t as printed"),
        ("ResNet-50, 4 x V100, n 128", "GPUs x n / t"),
        ("shared NFS", "IOPS x 64 KB"),
    ]


# --- where t comes from ---


@pytest.mark.parametrize("name", ["resnet50", "ResNet-50", "RESNET_50"])
def test_step_of_a_name_as_people_write_it(name):
    assert step_of(128, model=name, device="V100") == step_of(128, model="resnet50", device="v100")


def test_step_of_another_batch_size():
    measured = step_of(128, model="resnet50", device="v100", step_seconds=0.09)
    assert measured == (0.09, "measured, as given")
    seconds, basis = step_of(256, model="resnet50", device="v100")
    assert seconds == pytest.approx(256 / 1457)
    assert basis.endswith("at n 128, taken to be the same at n 256")


def test_step_by_an_estimate():
    seconds, basis = step_of(100, model="vgg16", device="v100")
    assert seconds == pytest.approx(100 * 6 * 15.47e9 / (125e12 * 0.35))
    assert basis == (
        "estimated: 92.8 GFLOP an example, 35% of the 125.0 TFLOP/s of Tesla V100 (SXM2) in fp16"
    )


def test_step_by_an_estimate_is_within_a_third(monkeypatch):
    """Estimated as any model would be that has no published throughput."""
    measured = THROUGHPUTS.copy()
    monkeypatch.setattr(planning, "THROUGHPUTS", {})
    for (model, device), (size, rate) in measured.items():
        seconds, _ = step_of(size, model=model, device=device)
        assert size / seconds == pytest.approx(rate, rel=1 / 3)
