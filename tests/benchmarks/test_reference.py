"""Bars as data: what a figure of here says beside the reference machine's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.experiments import gluon_ratios, keras_ratios, records_ratios
from benchmarks.harness import reference as module
from benchmarks.harness.reference import Reference

MACHINE = {"cpu": "Xeon", "cpus": 2, "features": ["native kernel", "AVX-512 VBMI"], "gpus": []}


@pytest.fixture
def reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reference:
    """On a machine that has the native kernel and no VBMI."""
    features = module.found_features().__class__(2, True, False, ())
    monkeypatch.setattr(module, "found_features", lambda: features)
    rows = {
        "JPEG": {"reference": 3.2, "least": 1.6, "needs": ["native kernel"], "machine": "xeon"},
        "vectors": {"least": 2, "needs": ["AVX-512 VBMI"]},
        "parity": {"least": 1},
        "seconds": {"most": 0.2},
    }
    path = tmp_path / "reference.json"
    path.write_text(json.dumps({"machines": {"xeon": MACHINE}, "rows": rows}))
    return Reference.read(path)


def test_a_figure_stands_beside_the_references(reference: Reference) -> None:
    verdict = reference.judge("JPEG", 2.1)
    assert verdict is not None
    assert str(verdict) == (
        "JPEG: 2.1 here; 3.2 on the reference machine (2 CPUs, native kernel, AVX-512 VBMI); "
        "bar: at least 1.6"
    )
    assert not verdict.missed


@pytest.mark.parametrize(
    ("row", "here", "parity", "missed", "said"),
    [
        ("JPEG", 1.5, True, True, "bar: at least 1.6, missed"),
        ("vectors", 1.5, False, False, "missed; not held, as it needs the AVX-512 VBMI"),
        ("parity", 0.9, False, True, "0.9 here; bar: at least 1, missed"),
        ("parity", 0.9, True, False, "0.9 here; bar: at least 1"),
        ("seconds", 0.3, False, True, "bar: at most 0.2, missed"),
        ("seconds", 0.1, False, False, "bar: at most 0.2"),
    ],
)
def test_a_bar_may_be_missed(reference: Reference, row, here, parity, missed, said) -> None:
    verdict = reference.judge(row, here, parity)
    assert verdict is not None
    assert verdict.missed is missed
    assert str(verdict).endswith(said)


def test_what_the_reference_has_not_is_not_judged(reference: Reference) -> None:
    assert reference.judge("another", 1) is None


def test_the_repositorys_reference_has_every_ratio() -> None:
    reference = Reference.read()
    names = {
        f"{ratio.peer.framework} {name}"
        for table in (records_ratios.TABLE, keras_ratios.TABLE, gluon_ratios.TABLE)
        for name, ratio in table.items()
    }
    assert names <= set(reference.rows)
    for row in reference.rows.values():
        assert row.get("machine") in (None, *reference.machines)
