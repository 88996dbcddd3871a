"""From a workload to what it requires, and to the published examples, digit by digit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapters import planning
from adapters.planning import THROUGHPUTS, Storage, Workload, published_examples, step_of

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# 1,000 examples a second of 64 KiB.
PLAIN = Workload(batch_size=100, batch_seconds=0.1, example_bytes=64 * KIB, examples=10_000)


def test_requirement_of_packed_reads():
    assert (PLAIN.packed_iops, PLAIN.packed_read_bytes) == (pytest.approx(1000 / 16), MIB)
    large = replace(PLAIN, example_bytes=3 * MIB)
    assert large.packed_iops == pytest.approx(large.examples_per_second)
    assert large.packed_read_bytes == 3 * MIB


@pytest.mark.parametrize("field", ["gpus", "experiments"])
def test_requirement_of_gpus_and_experiments(field):
    one, three = PLAIN, replace(PLAIN, **{field: 3})
    for name in ("examples_per_second", "bytes_per_second", "packed_iops"):
        assert getattr(three, name) == pytest.approx(3 * getattr(one, name)), name
    assert three.gpu_examples_per_second == one.gpu_examples_per_second
    assert three.dataset_bytes == one.dataset_bytes
    epochs = {"gpus": one.epoch_seconds / 3, "experiments": one.epoch_seconds}
    assert three.epoch_seconds == pytest.approx(epochs[field])


# --- shards ---


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
    workload = Workload(1, 1.0, dataset_bytes, 1, gpus=readers)
    assert workload.shard_bytes == shard_bytes


def test_shards_hold_all():
    for examples in (1, 1024, 1025, 10**6):
        need = replace(PLAIN, examples=examples, gpus=3)
        assert (need.shards - 1) * need.shard_bytes < need.dataset_bytes
        assert need.shards * need.shard_bytes >= need.dataset_bytes


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
    """For loose files and packed records of PLAIN: 1,000 or 62.5 IOPS, and 62.5 MiB/s."""
    least, most = (rate * MIB for rate in mib_per_second)
    kind = Storage("a disk", iops, (least, most), "made up")
    assert kind.verdict(PLAIN.examples_per_second, PLAIN.bytes_per_second) == files
    assert kind.verdict(PLAIN.packed_iops, PLAIN.bytes_per_second) == packed


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
