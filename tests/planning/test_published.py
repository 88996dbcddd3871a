"""The published examples come out of the formulas, to the digits that were printed."""

from __future__ import annotations

import re

import pytest

from adapters.planning import (
    DEVICES,
    MODELS,
    STORAGE,
    THROUGHPUTS,
    Comparison,
    Workload,
    comparison_lines,
    published_examples,
    required,
    step_of,
)

KIB, MIB = 1 << 10, 1 << 20


def workload(batch_size: int, batch_seconds: float, gpus: int = 1) -> Workload:
    return Workload(batch_size, batch_seconds, 64 * KIB, 1_281_167, gpus)


def test_resnet_50_on_a_v100_takes_0_087_seconds_over_128_images():
    """Printed cut off: 0.0879."""
    step = step_of(128, model="resnet50", device="v100")
    assert int(1000 * step.batch_seconds) == 87
    assert round(required(workload(128, step.batch_seconds)).gpu_examples_per_second) == 1457


def test_resnet_152_takes_730_images_a_second():
    step = step_of(64, model="resnet152", device="v100")
    assert round(required(workload(64, step.batch_seconds)).gpu_examples_per_second) == 730


def test_four_v100_take_5885_iops_and_367_mb_a_second():
    need = required(workload(128, 0.087, gpus=4))
    assert round(need.file_iops) == 5885
    assert int(need.bytes_per_second / MIB) == 367


def test_the_whole_t_gives_fewer_iops_than_the_printed_one():
    step = step_of(128, model="resnet50", device="v100")
    assert round(required(workload(128, step.batch_seconds, gpus=4)).file_iops) == 5828


@pytest.mark.parametrize(
    ("gpus", "iops"), [(1, (640, 1280)), (40, (25_600, 51_200))], ids=["shared NFS", "small files"]
)
def test_ranges_of_iops(gpus, iops):
    computed = [required(workload(64, seconds, gpus)).file_iops for seconds in (0.1, 0.05)]
    assert computed == pytest.approx(iops)


@pytest.mark.parametrize(("seconds", "printed"), [(0.1, 1.6), (0.05, 3.2)], ids=["least", "most"])
def test_small_files_take_1_6_to_3_2_gb_a_second(seconds, printed):
    need = required(workload(64, seconds, gpus=40))
    assert need.bytes_per_second / (1000 * MIB) == pytest.approx(printed)


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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("model", MODELS)
def test_every_model_has_a_step_on_every_device(model, device):
    assert 0 < step_of(32, model=model, device=device).batch_seconds < 10


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
