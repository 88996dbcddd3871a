"""Importing MXNet: what NumPy lends it and gets back, and what is said where it can't be had."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

_ROOT = Path(__file__).parent.parent.parent
WITHOUT_MXNET = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "mxnet":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def output_of(text: str) -> list[str]:
    """What a script prints, line by line; it must end well, and say nothing else."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(text)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


@pytest.mark.skipif("bool" in vars(np), reason="this NumPy has np.bool")
def test_numpy_is_as_it_was_after_mxnet_has_been_imported():
    before_and_after = output_of("""
    import types
    import numpy as np

    def names():  # Submodules come as they are used.
        return {k: v for k, v in vars(np).items() if not isinstance(v, types.ModuleType)}

    before = names()
    print("bool" in before)
    import adapters.gluon
    after = names()
    print(sorted(name for name in after if name not in before or before[name] is not after[name]))
    print(sorted(before.keys() - after.keys()))
    """)
    assert before_and_after == ["False", "[]", "[]"]


@pytest.mark.full
def test_a_numpy_that_has_the_name_keeps_its_own():
    said = output_of("""
    import numpy as np
    np.bool = own = type("bool", (), {})
    import adapters.gluon
    print(np.bool is own)
    """)
    assert said == ["True"]


def test_numpy_gets_its_name_back_where_the_import_fails():
    said = output_of(
        WITHOUT_MXNET
        + "import numpy as np\nbefore = set(vars(np))\n"
        + """
try:
    import adapters.gluon
except ImportError:
    print(sorted(set(vars(np)) - before))
"""
    )
    assert said == ["[]"]


def test_the_missing_mxnet_is_named_with_what_to_install():
    said = output_of(
        WITHOUT_MXNET
        + """
try:
    from adapters import gluon_loader
except ImportError as error:
    print(type(error).__name__, error)
"""
    )
    assert said[0].startswith("ImportError gluon_loader needs MXNet: pip install ")


@pytest.mark.full
def test_a_module_that_mxnet_misses_is_not_taken_for_mxnet():
    said = output_of("""
    import builtins
    real = builtins.__import__

    def without_graphviz(name, *arguments):
        if name == "context":
            raise ModuleNotFoundError("No module named 'graphviz'", name="graphviz")
        return real(name, *arguments)

    builtins.__import__ = without_graphviz
    try:
        import adapters.gluon
    except ImportError as error:
        print(type(error).__name__, error)
    """)
    assert said == ["ModuleNotFoundError No module named 'graphviz'"]


def test_a_numpy_that_is_too_new_is_named_with_what_to_install():
    said = output_of("""
    import sys
    import numpy
    numpy.__version__ = "2.1.0"
    try:
        import adapters.gluon
    except ImportError as error:
        print(type(error).__name__, error)
    print("mxnet" in sys.modules)
    """)
    assert said[0].startswith("ImportError MXNet needs NumPy 1, and NumPy 2.1.0 is installed: pip")
    assert said[1] == "False"


def test_the_package_alone_imports_no_mxnet():
    said = output_of("""
    import sys
    import adapters
    print("gluon_loader" in dir(adapters), "mxnet" in sys.modules)
    adapters.ClosedError
    print("mxnet" in sys.modules)
    """)
    assert said == ["True False", "False"]


@pytest.mark.full
def test_an_mxnet_that_is_there_already_is_taken_as_it_is():
    said = output_of("""
    import numpy as np
    np.bool = bool
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mxnet
    from adapters.gluon import import_mxnet
    print(import_mxnet() is mxnet, np.bool is bool)
    """)
    assert said == ["True True"]


@pytest.mark.full
def test_two_threads_may_import_it_at_once():
    said = output_of("""
    import threading
    import numpy as np
    found = []
    start = threading.Barrier(2)
    def load():
        start.wait(20)
        from adapters import gluon_loader
        found.append(gluon_loader.__name__)
    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(found, "bool" in vars(np))
    """)
    assert said == ["['DataLoader', 'DataLoader'] False"]


def test_no_collection_asks_anything_of_ours_while_the_interpreter_is_taken_down():
    """It said 'NoneType' object has no attribute 'get_stats', once in a while."""
    assert output_of("""
    import atexit, gc
    atexit.register(lambda: print(gc.callbacks))
    import adapters.gluon
    print(len(gc.callbacks))
    """) == ["1", "[]"]
