"""From a workload to what it requires, in numbers that can be followed by hand."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from adapters.planning import (
    DEVICES,
    MODELS,
    STORAGE,
    THROUGHPUTS,
    Comparison,
    Fit,
    Verdict,
    Workload,
    comparison_lines,
    published_examples,
    required,
    step_of,
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


# --- the published examples ---


def workload(batch_size: int, batch_seconds: float, gpus: int = 1) -> Workload:
    return Workload(batch_size, batch_seconds, 64 * KIB, 1_281_167, gpus)


def test_resnet_50_on_a_v100_takes_0_087_seconds_over_128_images():
    """Printed cut off: 0.0879."""
    step = step_of(128, model="resnet50", device="v100")
    assert int(1000 * step.batch_seconds) == 87
    assert round(required(workload(128, step.batch_seconds)).gpu_examples_per_second) == 1457


def test_just_those_figures_differ_that_are_known_to():
    differing = [(each.subject, each.formula) for each in published_examples() if not each.agrees]
    assert differing == [
        ("ResNet-50, V100, n 128", "n / t, t as printed"),
        ("ResNet-50, 4 x V100, n 128", "GPUs x n / t"),
        ("shared NFS", "IOPS x 64 KB"),
    ]


def test_what_differs_says_why():
    assert all(each.note for each in published_examples() if not each.agrees)


@pytest.mark.parametrize(
    ("computed", "printed", "decimals", "agrees"),
    [
        (367.8, 367, 0, True),
        (367.8, 368, 0, True),
        (367.8, 366, 0, False),
        (0.08785, 0.087, 3, True),
        (0.08785, 0.086, 3, False),
        (1.65, 1.6, 1, True),
        (1.75, 1.6, 1, False),
    ],
)
def test_figures_agree_to_the_last_printed_digit(computed, printed, decimals, agrees):
    compared = Comparison("x", "y", (computed,), (printed,), "s", decimals)
    assert compared.agrees is agrees


def test_both_figures_are_shown_where_they_differ():
    compared = Comparison("a GPU", "n / t", (5828.2,), (5885,), "IOPS", note="t was cut off")
    (_, line) = comparison_lines([compared])
    assert re.split("  +", line) == [
        "a GPU",
        "n / t",
        "5,828.2 IOPS",
        "5,885 IOPS",
        "differs: t was cut off",
    ]


def test_a_printed_figure_that_is_not_at_hand_is_not_made_up():
    compared = Comparison("NFS", "IOPS", (40.0, 80.0), (), "MB/s", note="doesn't follow")
    (_, line) = comparison_lines([compared])
    assert line.endswith("40 to 80 MB/s  not at hand  doesn't follow")


# --- where t comes from ---


@pytest.mark.parametrize("name", ["resnet50", "ResNet-50", "RESNET_50"])
def test_a_name_may_be_written_as_people_do(name):
    assert step_of(128, model=name, device="V100") == step_of(128, model="resnet50", device="v100")


def test_another_batch_size_is_said_to_be_an_assumption():
    step = step_of(256, model="resnet50", device="v100")
    assert step.batch_seconds == pytest.approx(256 / 1457)
    assert step.basis.endswith("at n 128, taken to be the same at n 256")


def test_a_measured_step_comes_before_all_else():
    step = step_of(128, model="resnet50", device="v100", step_seconds=0.09)
    assert (step.batch_seconds, step.basis) == (0.09, "measured, as given")


def test_an_estimate_is_six_operations_for_each_multiply_add_at_a_share_of_the_peak():
    step = step_of(100, multiply_adds=1e9, device="v100", precision="fp32", utilisation=0.5)
    assert step.batch_seconds == pytest.approx(100 * 6e9 / (15.7e12 * 0.5))
    assert step.basis == (
        "estimated: 6.0 GFLOP an example, 50% of the 15.7 TFLOP/s of Tesla V100 (SXM2) in fp32"
    )


@pytest.mark.parametrize("row", THROUGHPUTS, ids=lambda row: row.model)
def test_the_estimate_is_within_a_third_of_what_was_measured(row):
    """Estimated as any model would be that has no published throughput."""
    multiply_adds = MODELS[row.model].multiply_adds
    step = step_of(row.batch_size, multiply_adds=multiply_adds, device=row.device)
    assert row.batch_size / step.batch_seconds == pytest.approx(row.examples_per_second, rel=1 / 3)


@pytest.mark.parametrize("option", [{"precision": "fp16"}, {"utilisation": 0.35}])
def test_who_says_how_to_estimate_gets_an_estimate(option):
    step = step_of(128, model="resnet50", device="v100", **option)
    assert step == step_of(128, multiply_adds=4.09e9, device="v100")
    assert step.basis.startswith("estimated: ")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "vgg99", "device": "v100"}, "model must be one of alexnet, .*, got 'vgg99'"),
        ({"model": "vgg16", "device": "abacus"}, "device must be one of p100, .*, got 'abacus'"),
        ({"model": "vgg16"}, "a device must be given"),
        ({"device": "v100"}, "a device must be given with a model or its multiply-adds"),
        (
            {"model": "vgg16", "device": "v100", "precision": "fp8"},
            "precision must be one of fp32, fp16 on Tesla V100 .*, got 'fp8'",
        ),
        ({"step_seconds": 0}, "step_seconds must be > 0 and finite, got 0"),
        ({"multiply_adds": -1, "device": "v100"}, "multiply_adds must be > 0 and finite, got -1"),
        (
            {"model": "vgg16", "device": "v100", "utilisation": 1.5},
            "utilisation must be > 0 and <= 1, got 1.5",
        ),
    ],
)
def test_what_there_is_no_step_for_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        step_of(32, **given)


def test_a_mini_batch_of_nothing_is_refused():
    with pytest.raises(ValueError, match="batch_size must be >= 1, got 0"):
        step_of(0, step_seconds=1)


# --- the tables ---


def test_throughputs_are_of_known_models_and_devices():
    for row in THROUGHPUTS:
        assert row.model in MODELS
        assert row.device in DEVICES


@pytest.mark.parametrize("device", DEVICES.values(), ids=list(DEVICES))
def test_the_fastest_precision_is_last(device):
    assert list(device.peak_flops.values()) == sorted(device.peak_flops.values())


@pytest.mark.parametrize("kind", STORAGE, ids=lambda kind: kind.title)
def test_storage_gives_from_little_to_much_and_names_a_source(kind):
    assert 0 < kind.iops[0] < kind.iops[1]
    assert 0 < kind.bytes_per_second[0] < kind.bytes_per_second[1]
    assert kind.source
