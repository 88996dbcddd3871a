"""A peer's tests in a process of their own, as they are or with ours in place."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.peers import outcomes
from tests.peers.outcomes import Outcomes
from tests.peers.sources import Source
from tests.peers.suites import Suite

_REPOSITORY = Path(__file__).parents[2]
_TEST_SECONDS = 120
_LIMIT_SECONDS = 900


class Run:
    """Begins at once; ``outcomes`` waits for its end.

    Args:
        suite: What is run.
        variant: The name of one of the suite's.
        source: Where its files are.
        folder: An empty one to run in, as an absolute path.
        ours: Put ours in the place of theirs.
        all_of_it: With what takes long.
    """

    def __init__(
        self,
        suite: Suite,
        variant: str,
        source: Source,
        folder: Path,
        *,
        ours: bool,
        all_of_it: bool,
    ) -> None:
        self._outcomes = folder / "outcomes"
        self._output = folder / "output"
        replacement = [suite.replacement, "tests.peers.by_value"] if ours else []
        plugins = ["tests.peers.outcomes", *suite.surroundings, *replacement]
        path = [str(_REPOSITORY), *[str(source.root)] * (not source.installed)]
        work = folder / "work"
        work.mkdir()
        command = [
            *(sys.executable, "-m", "pytest"),
            *("-c", os.devnull, f"--rootdir={work}", "--noconftest", "-p", "no:cacheprovider"),
            *(f"--timeout={_TEST_SECONDS}", "-W", "ignore", "--tb=short"),
            *(argument for plugin in plugins for argument in ("-p", plugin)),
            *(str(source.root / file) for file in suite.files),
        ]
        # What this run of pytest was told is not for that one.
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        environment = {
            **own,
            **suite.variants[variant],
            outcomes.FILE: str(self._outcomes),
            outcomes.SELECTED: suite.selection,
            outcomes.LEFT_OUT: "" if all_of_it else suite.long,
            "PYTHONPATH": os.pathsep.join(path),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                command,
                cwd=work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def outcomes(self) -> Outcomes:
        """What became of each test, once all have ended or the time is up.

        Raises:
            AssertionError: There is none.
        """
        # A test that hangs in C++ hears no signal.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LIMIT_SECONDS)
        self.kill()
        found = outcomes.read(self._outcomes)
        assert found, f"no test was run:\n{self._output.read_text()[-4000:]}"
        return found

    def kill(self) -> None:
        """End the process and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
