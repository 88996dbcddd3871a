"""README's picture and table of results, from the results themselves.

`python -m benchmarks.picture` draws `docs/results.svg` from `benchmarks/readme.json` and prints the
table; with the `run.json` of one session or several, as in

    pytest benchmarks --rows "$(python -m benchmarks.picture --rows)"
    python -m benchmarks.picture benchmarks/results/run.json

it takes the rows out of these first, and writes them there. A row that none of the files has stays
as it is. `python -m benchmarks.picture --sweep mnist.json` prints the MNIST sweep of such a file as
a table, samples/s by workers: README shows that of a GPU first.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.comparison import read_earlier
from benchmarks.harness.pairs import Bar, Pair, drawn
from benchmarks.harness.reference import Reference
from benchmarks.harness.results import SPEED, Experiment, Row, Run, write_json
from benchmarks.harness.summary import Line, lines_of, rounded
from benchmarks.harness.sweeps import ALTERNATIVES

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks" / "readme.json"
PICTURE = ROOT / "docs" / "results.svg"
EXPERIMENT = "ratios"
# Framework and name of a row, and what README calls the work: those that the default size runs.
WORKS = {
    ("Keras", "JPEG TFRecord against tf.data"): "TFRecords of JPEGs, random crops, into Keras",
    ("Gluon", "JPEG RecordIO against ImageRecordIter"): "RecordIO of the same JPEGs, into Gluon",
    ("Keras", "typed digits of TFRecord against tf.data"): "`tf.train.Example`s of digits",
    ("Keras", "batches through processes"): "batches of images from two processes",
    (
        "Keras",
        "arrays, shuffled and scaled",
    ): "60,000 digits, shuffled and scaled, into Keras",
    ("Gluon", "ToTensor"): "MNIST through ToTensor, into Gluon",
}
NOTE = "A loader alone; longer is faster. Ours: the median; theirs: the best round.\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, and print the table; returns 0.

    Args:
        arguments: Paths of `run.json` files, or `--rows`; those of the process otherwise.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.picture", description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path, help="run.json files to take the rows from")
    parser.add_argument("--rows", action="store_true", help="only say what the rows are called")
    parser.add_argument("--sweep", type=Path, help="an mnist.json to print as a table")
    options = parser.parse_args(arguments)
    if options.sweep:
        print("\n".join(sweep_table(options.sweep)))
        return 0
    if options.rows:
        print(ALTERNATIVES.join(f"{framework} {name} workers" for framework, name in WORKS))
        return 0
    if options.runs:
        write_json(taken(options.runs), KEPT)
    PICTURE.write_text(picture(KEPT))
    print("\n".join(table(KEPT)))
    print(f"written: {PICTURE.relative_to(ROOT)}", file=sys.stderr)
    return 0


def taken(paths: Sequence[Path]) -> dict[str, Any]:
    """The content of `readme.json`: the rows of these files, of later ones where several have one.

    Raises:
        ValueError: A file is no `run.json`.
    """
    kept = [KEPT] if KEPT.exists() else []
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    machine: dict[str, Any] = {}
    for path in [*kept, *paths]:
        read = read_earlier(path)
        found = [run for run in read.runs.get(EXPERIMENT, []) if _key(run) in WORKS]
        dates = _dates(path)
        for key in {_key(run) for run in found}:
            runs[key] = [
                {**dataclasses.asdict(run), "date": dates.get(key, read.machine["date"][:10])}
                for run in found
                if _key(run) == key
            ]
        # Of one session only; each run has its command.
        machine = {**read.machine, "arguments": [], "commit": None}
    ordered = [run for key in WORKS for run in runs.get(key, [])]
    return {"machine": machine, "experiment": EXPERIMENT, "size": "default", "runs": ordered}


def _dates(path: Path) -> dict[tuple[str, str], str]:
    """When the rows that are kept were measured; empty for a session's own file."""
    runs = json.loads(path.read_text()).get("runs", [])
    return {(run["framework"], run["loader"]): run["date"] for run in runs if "date" in run}


def _key(run: Run) -> tuple[str, str]:
    return run.framework, run.loader


def lines(path: Path) -> list[Line]:
    """Rows in README's order."""
    experiment = Experiment(EXPERIMENT, "", runs=read_earlier(path).runs[EXPERIMENT])
    named = {f"{framework}: {name}": work for (framework, name), work in WORKS.items()}
    found = {line.work: line for line in lines_of(experiment)}
    return [
        dataclasses.replace(found[name], work=work) for name, work in named.items() if name in found
    ]


def picture(path: Path) -> str:
    """The SVG."""
    pairs = []
    for line in lines(path):
        assert line.ours is not None  # Of a ratio, there are both.
        assert line.peer is not None
        assert line.ratio is not None
        bars = [
            Bar(_loader(each.who), each.value, f"{rounded(each.value)} {line.unit}")
            for each in (line.ours, line.peer)
        ]
        pairs.append(Pair(line.work.replace("`", ""), f"{line.ratio:.1f} times", *bars))
    return drawn("Loading, ours against the peer at its best", pairs, NOTE + machine(path))


def table(path: Path) -> list[str]:
    """README's table, in Markdown, with what each row needs."""
    reference = Reference.read()
    rows = ["| work | needs | ours | peer, best round | ratio |", "| :-- | :-- | --: | --: | --: |"]
    for line in lines(path):
        assert line.ours is not None
        assert line.peer is not None
        needs = ", ".join(reference.rows.get(line.row, {}).get("needs", ())) or "-"
        rows.append(
            f"| {line.work}, {line.unit} | {needs} | {rounded(line.ours.value)} | "
            f"{_loader(line.peer.who)} {rounded(line.peer.value)} | {line.ratio:.1f} |"
        )
    return rows


def sweep_table(path: Path) -> list[str]:
    """The MNIST sweep of a file as Markdown: a row for each loader, samples/s by workers."""
    (runs,) = read_earlier(path).runs.values()
    rows = Experiment("mnist", "", runs=runs).rows()
    columns = list(dict.fromkeys(row.workers for row in sorted(rows, key=_numbers_first)))
    heads = ["loader", *(str(each) for each in columns)]
    found = [" | ".join(heads), " | ".join([":--", *["--:"] * len(columns)])]
    for framework, loader in dict.fromkeys((row.framework, row.loader) for row in rows):
        speeds = {
            row.workers: f"{row.medians[SPEED]:,.0f}"
            for row in rows
            if (row.framework, row.loader) == (framework, loader) and SPEED in row.medians
        }
        cells = [f"{framework}: {loader}", *(speeds.get(each, "") for each in columns)]
        found.append(" | ".join(cells))
    devices = dict.fromkeys(f"{run.software}, on {run.device}" for run in runs if run.software)
    return [*(f"| {line} |" for line in found), "", *devices]


def _numbers_first(row: Row) -> tuple[bool, int | str]:
    return isinstance(row.workers, str), row.workers


def machine(path: Path) -> str:
    """In a few words, with the dates."""
    found = json.loads(path.read_text())["machine"]
    gpus = "a GPU" if found["gpus"] else "no GPU"
    dates = " and ".join(sorted(set(_dates(path).values())))
    return f"{found['usable_cpus']} cores of an {found['cpu']}, {gpus}, {dates}"


def _loader(who: str) -> str:
    """Without its workers."""
    return who.split(",")[0]


if __name__ == "__main__":
    sys.exit(main())
