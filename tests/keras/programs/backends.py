"""Runs ``tests/keras`` once per argument, which is ``[output, python, backend]`` in JSON.

Writes what pytest printed to the file ``output``, and its exit code to the file beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1]

if __name__ == "__main__":
    for argument in sys.argv[1:]:
        output, python, backend = json.loads(argument)
        with open(output, "w") as file:
            ended = subprocess.run(
                [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(_TESTS)],
                env={**os.environ, "KERAS_BACKEND": backend},
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            )
        Path(output).with_suffix(".code").write_text(str(ended.returncode))
