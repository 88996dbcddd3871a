"""How many CPUs may be used: of the affinity, and of control groups that a test makes up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapters import cpus
from adapters.cpus import usable_cpus


@pytest.fixture(autouse=True)
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Control groups of a test's own, on a machine of 8 CPUs."""
    monkeypatch.setattr(cpus, "_GROUPS", tmp_path)
    monkeypatch.setattr(cpus, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    return tmp_path


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_without_control_groups_it_is_the_affinity():
    assert usable_cpus() == 8


@pytest.mark.parametrize(
    ("told", "count"),
    [
        ("max 100000", 8),
        ("300000 100000", 3),
        ("250000 100000", 3),
        ("10000 100000", 1),
        ("1600000 100000", 8),
        ("nonsense", 8),
    ],
)
def test_the_quota_of_version_2(groups, told, count):
    """Part of a CPU counts as one."""
    write(groups, own="0::/a/b")
    write(groups / "a" / "b", cpu__max=told)
    assert usable_cpus() == count


@pytest.mark.parametrize(("quota", "count"), [("-1", 8), ("200000", 2), ("150000", 2), ("1", 1)])
def test_the_quota_of_version_1(groups, quota, count):
    write(groups, own="7:memory:/a\n4:cpu,cpuacct:/a\n0::/a")
    folder = groups / "cpu" / "a"
    write(folder, cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000")
    assert usable_cpus() == count


def test_the_smallest_quota_of_all_groups_around_counts(groups):
    write(groups, own="0::/a/b/c")
    write(groups / "a" / "b", cpu__max="200000 100000")
    write(groups / "a" / "b" / "c", cpu__max="400000 100000")
    assert usable_cpus() == 2


def test_a_container_that_sees_its_own_group_at_the_top(groups):
    write(groups, own="0::/docker/0123", cpu__max="400000 100000")
    assert usable_cpus() == 4


def test_what_lies_outside_of_the_groups_does_not_count(groups, monkeypatch):
    monkeypatch.setattr(cpus, "_GROUPS", groups / "inside")
    write(groups, own="0::/a", cpu__max="100000 100000")
    assert usable_cpus() == 8


def test_the_affinity_counts_if_it_is_smaller(groups, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    write(groups, own="0::/", cpu__max="400000 100000")
    assert usable_cpus() == 1
