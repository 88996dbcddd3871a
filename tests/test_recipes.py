"""docs/recipes/: a page for each task, whose programs are short and run as they stand.

Each program runs in an empty folder of its own; those that need the same framework run in one
process, which imports it once.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "recipes"
INDEX = FOLDER / "README.md"
PAGES = sorted(set(FOLDER.glob("*.md")) - {INDEX})
MOST_LINES = 25
MOST_PROGRAMS = 6
# Keras's backend for the programs of each framework. A program belongs to the first that it names.
BACKENDS = {
    "mxnet": "jax",
    "tensorflow": "tensorflow",
    "torch": "torch",
    "keras": "jax",
    "numpy": "jax",
}
_PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_IMPORTED = re.compile(r"^(?:import|from) (\w+)", re.MULTILINE)
# Runs the programs that are named on its command line and says how each ended.
_RUN_ALL = """
import json, os, runpy, sys, time, traceback
ended = {}
for path in sys.argv[1:]:
    os.chdir(os.path.dirname(path))
    started = time.perf_counter()
    try:
        runpy.run_path(path, run_name="__main__")
        error = ""
    except BaseException:
        error = traceback.format_exc()
    ended[path] = error, time.perf_counter() - started
with open(os.environ["RECIPES_ENDED"], "w") as file:
    json.dump(ended, file)
"""


def programs(page: Path) -> list[str]:
    """The programs of a page; each is whole."""
    return _PROGRAM.findall(page.read_text())


def imported(program: str) -> set[str]:
    """Packages that a program imports."""
    packages = set(_IMPORTED.findall(program))
    return packages | ({"mxnet"} if "gluon_loader" in program else set())


def framework(program: str) -> str:
    """The name in `BACKENDS` under which a program runs."""
    return next(name for name in BACKENDS if name in imported(program))


def groups() -> Iterator[tuple[str, dict[str, str]]]:
    """Programs that run in one process: their framework, and each by its name."""
    for name in BACKENDS:
        found = [
            (f"{page.stem}-{number}", program)
            for page in PAGES
            for number, program in enumerate(programs(page))
            if framework(program) == name
        ]
        for start in range(0, len(found), MOST_PROGRAMS):
            yield name, dict(found[start : start + MOST_PROGRAMS])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_a_title_a_program_and_pitfalls(page):
    text = page.read_text()
    assert text.startswith("# ")
    assert programs(page)
    assert "\n## Pitfalls\n" in text
    assert "../reference.md" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_program_is_short(page):
    for program in programs(page):
        lines = list(filter(None, program.splitlines()))  # A formatter puts blank ones between.
        assert len(lines) <= MOST_LINES
        assert max(map(len, lines)) <= 100


def test_the_index_names_every_page_once():
    text = INDEX.read_text()
    assert sorted(re.findall(r"\]\(([\w-]+\.md)\)", text)) == [page.name for page in PAGES]
    assert "recipes/README.md" in (ROOT / "docs" / "README.md").read_text()


@pytest.mark.full
@pytest.mark.spread
@pytest.mark.parametrize(("name", "group"), [pytest.param(*each, id=each[0]) for each in groups()])
def test_the_programs_run(name, group, tmp_path):
    scripts = {}
    for title, program in group.items():
        needed = imported(program) | ({"keras"} if "SafeSequence" in program else set())
        if any(importlib.util.find_spec(package) is None for package in needed):
            continue
        script = tmp_path / title / "program.py"
        script.parent.mkdir()
        script.write_text(program)
        scripts[str(script)] = title
    if not scripts:
        pytest.skip(f"what the recipes with {name} need isn't installed")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(temporary),
        "RECIPES_ENDED": str(tmp_path / "ended.json"),
    }
    if importlib.util.find_spec(BACKENDS[name]) is not None:
        environment["KERAS_BACKEND"] = BACKENDS[name]
    finished = subprocess.run(
        [sys.executable, "-c", _RUN_ALL, *scripts],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert finished.returncode == 0, finished.stderr
    ended = json.loads((tmp_path / "ended.json").read_text())
    for path, (error, seconds) in ended.items():
        print(f"{scripts[path]}: {seconds:.1f} s")
        assert not error, f"{scripts[path]}:\n{error}"
    assert len(ended) == len(scripts)
