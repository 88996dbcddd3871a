"""Bars as data: `reference.json`, and what a figure of here says beside it.

A bar that is missed is information: it depends on the processor and on what is installed. `--hold`
makes it an exit status. The file has, by the name of a row, its figure on a reference machine and
the bar, which is `least` or `most`::

    {"machines": {"xeon": {"cpu": "...", "cpus": 2, "features": ["native kernel", ...]}},
     "rows": {"Keras JPEG TFRecord against tf.data":
              {"reference": 3.2, "least": 1.6, "needs": ["native kernel"], "machine": "xeon"}}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from adapters.machine import found_features

FILE = Path(__file__).parents[1] / "reference.json"


@dataclass(frozen=True)
class Verdict:
    """A row's figure beside the reference's.

    Args:
        row: The row's name.
        here: Its figure on this machine.
        reference: On the reference machine; None if it wasn't measured there.
        machine: The reference machine in words.
        bar: In words; "" without one.
        missing: What the row needs and this machine hasn't: then its bar isn't held.
        met: Whether the bar is reached.
    """

    row: str
    here: float
    reference: float | None
    machine: str
    bar: str
    missing: tuple[str, ...]
    met: bool

    @property
    def missed(self) -> bool:
        """Whether `--hold` minds."""
        return not self.met and not self.missing

    @property
    def beside(self) -> str:
        """The two figures."""
        if self.reference is None:
            return f"{self.here:.3g} here"
        return (
            f"{self.here:.3g} here; {self.reference:.3g} on the reference machine ({self.machine})"
        )

    def __str__(self) -> str:
        parts = [self.beside]
        if self.bar:
            parts.append(self.bar if self.met else f"{self.bar}, missed")
        if self.missing:
            parts.append(f"not held, as it needs the {' and the '.join(self.missing)}")
        return f"{self.row}: {'; '.join(parts)}"


@dataclass(frozen=True)
class Reference:
    """The file's content.

    Args:
        machines: By name.
        rows: By name.
    """

    machines: Mapping[str, Mapping[str, Any]]
    rows: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, path: Path = FILE) -> Reference:
        """Of the repository."""
        content = json.loads(path.read_text())
        return cls(content["machines"], content["rows"])

    @cached_property
    def _here(self) -> frozenset[str]:
        return found_features().names

    def judge(self, row: str, here: float, parity: bool = False) -> Verdict | None:
        """What a figure says.

        Args:
            row: Its row's name.
            here: The figure.
            parity: Whether it reaches a bar of 1 in any case.

        Returns:
            The verdict; None of a row that the reference hasn't.
        """
        found = self.rows.get(row)
        if found is None:
            return None
        least, most = found.get("least"), found.get("most")
        words = [f"bar: at least {least:g}"] if least is not None else []
        words += [f"bar: at most {most:g}"] if most is not None else []
        high_enough = least is None or here >= least or (least == 1 and parity)
        return Verdict(
            row,
            here,
            found.get("reference"),
            self._described(found.get("machine")),
            ", ".join(words),
            tuple(name for name in found.get("needs", ()) if name not in self._here),
            high_enough and (most is None or here <= most),
        )

    def _described(self, name: str | None) -> str:
        if name is None:
            return ""
        machine = self.machines[name]
        return ", ".join([f"{machine['cpus']} CPUs", *machine["features"], *machine["gpus"]])
