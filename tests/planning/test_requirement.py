"""From a workload to what it requires, in numbers that can be followed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from adapters.planning import (
    Fit,
    Verdict,
    Workload,
    required,
    storage_that_fits,
    suggested_shard_bytes,
)
from adapters.planning.published import Storage

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# 1,000 examples a second of 64 KiB.
PLAIN = Workload(batch_size=100, batch_seconds=0.1, example_bytes=64 * KIB, examples=10_000)


def test_a_step_of_n_examples_in_t_takes_n_over_t_a_second():
    need = required(PLAIN)
    assert need.batch_seconds == 0.1
    assert need.gpu_examples_per_second == pytest.approx(1000)
    assert need.examples_per_second == pytest.approx(1000)
    assert need.bytes_per_second == pytest.approx(1000 * 64 * KIB)
    assert need.dataset_bytes == 10_000 * 64 * KIB
    assert need.epoch_seconds == pytest.approx(10)


def test_a_file_an_example_is_a_read_an_example_and_records_are_read_by_the_mebibyte():
    need = required(PLAIN)
    assert need.file_iops == pytest.approx(1000)
    assert (need.packed_iops, need.packed_read_bytes) == (pytest.approx(1000 / 16), MIB)


def test_packing_large_examples_makes_no_more_reads_of_them():
    need = required(replace(PLAIN, example_bytes=3 * MIB))
    assert (need.packed_iops, need.packed_read_bytes) == (pytest.approx(need.file_iops), 3 * MIB)


@pytest.mark.parametrize("field", ["gpus", "experiments"])
def test_gpus_and_experiments_multiply_the_load(field):
    one, three = required(PLAIN), required(replace(PLAIN, **{field: 3}))
    for name in ("examples_per_second", "bytes_per_second", "file_iops", "packed_iops"):
        assert getattr(three, name) == pytest.approx(3 * getattr(one, name)), name
    assert three.gpu_examples_per_second == one.gpu_examples_per_second
    assert three.dataset_bytes == one.dataset_bytes


def test_gpus_shorten_an_epoch_and_experiments_do_not():
    assert required(replace(PLAIN, gpus=4)).epoch_seconds == pytest.approx(2.5)
    assert required(replace(PLAIN, experiments=4)).epoch_seconds == pytest.approx(10)


@pytest.mark.parametrize(
    ("memory_bytes", "fits"), [(None, None), (4 * GIB, True), (4 * GIB - 1, False)]
)
def test_three_quarters_of_the_memory_are_counted_on_for_the_page_cache(memory_bytes, fits):
    workload = replace(PLAIN, example_bytes=MIB, examples=3 * 1024, memory_bytes=memory_bytes)
    assert required(workload).fits_memory is fits


@pytest.mark.parametrize(
    ("rate", "workers"), [(None, None), (1001, 1), (1000, 1), (999, 2), (300, 4), (0.5, 2000)]
)
def test_workers_are_what_is_required_by_what_a_core_makes_rounded_up(rate, workers):
    assert required(replace(PLAIN, core_examples_per_second=rate)).workers == workers


def test_rounding_of_t_does_not_cost_a_worker():
    """n / (n / rate) isn't rate in floats, for some."""
    rates = range(1, 5000)
    steps = [replace(PLAIN, batch_seconds=100 / r, core_examples_per_second=r) for r in rates]
    assert any(100 / (100 / r) > r for r in rates)
    assert {required(step).workers for step in steps} == {1}


@pytest.mark.parametrize("name", ["batch_size", "example_bytes", "examples", "gpus", "experiments"])
def test_a_count_below_one_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be >= 1, got 0"):
        replace(PLAIN, **{name: 0})


@pytest.mark.parametrize("name", ["batch_seconds", "memory_bytes", "core_examples_per_second"])
@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
def test_a_quantity_that_is_not_positive_and_finite_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be > 0 and finite, got {value!r}"):
        replace(PLAIN, **{name: value})


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
def test_a_shard_is_as_large_as_leaves_four_to_each_reader(dataset_bytes, readers, shard_bytes):
    assert suggested_shard_bytes(dataset_bytes, readers) == shard_bytes


def test_shards_hold_the_whole_data_set():
    for examples in (1, 1024, 1025, 10**6):
        need = required(replace(PLAIN, examples=examples, gpus=3))
        assert (need.shards - 1) * need.shard_bytes < need.dataset_bytes
        assert need.shards * need.shard_bytes >= need.dataset_bytes


# --- storage ---


def verdicts(iops: tuple[float, float], mib_per_second: tuple[float, float]) -> tuple[str, str]:
    """For loose files and packed records of PLAIN: 1,000 or 62.5 IOPS, and 62.5 MiB/s."""
    least, most = (rate * MIB for rate in mib_per_second)
    kind = Storage("a disk", iops, (least, most), "made up")
    (fit,) = storage_that_fits(required(PLAIN), [kind])
    assert fit == Fit(kind, fit.files, fit.packed)
    return fit.files.value, fit.packed.value


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
def test_storage_must_give_both_the_reads_and_the_bytes(iops, mib_per_second, files, packed):
    assert verdicts(iops, mib_per_second) == (files, packed)


def test_packed_records_fit_storage_that_loose_files_do_not():
    """The point of packing: a shared NFS can't give 2,000 small files, but as many bytes."""
    need = required(replace(PLAIN, gpus=2))
    by_title = {fit.storage.title: fit for fit in storage_that_fits(need)}
    nfs = by_title["NFS, shared"]
    assert (nfs.files, nfs.packed) == (Verdict.TOO_SLOW, Verdict.AT_BEST)
    assert by_title["NVMe SSD"].files is Verdict.FITS
