"""Importing MXNet: what NumPy lends it and gets back, and what is said where it can't be had."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gluon.executors import output_of

WITHOUT_MXNET = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "mxnet":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
WITHOUT_GRAPHVIZ = """
import builtins
real = builtins.__import__

def without_graphviz(name, *arguments):
    if name == "context":
        raise ModuleNotFoundError("No module named 'graphviz'", name="graphviz")
    return real(name, *arguments)

builtins.__import__ = without_graphviz
"""
TOO_NEW = "import numpy; numpy.__version__ = '2.1.0'"
IMPORT = """
import sys
import numpy as np
before = set(vars(np))
try:
    {statement}
except ImportError as error:
    print(type(error).__name__, error)
    print(sorted(set(vars(np)) - before), "mxnet" in sys.modules)
"""


@pytest.mark.parametrize(
    ("setting", "statement", "said"),
    [
        (
            WITHOUT_MXNET,
            "from adapters import gluon_loader",
            "ImportError gluon_loader needs MXNet: pip install ",
        ),
        (
            TOO_NEW,
            "import adapters.gluon",
            "ImportError MXNet needs NumPy 1, and NumPy 2.1.0 is installed: pip",
        ),
        pytest.param(
            WITHOUT_GRAPHVIZ,
            "import adapters.gluon",
            "ModuleNotFoundError No module named 'graphviz'",
            marks=pytest.mark.full,
        ),
    ],
    ids=["no MXNet", "NumPy too new", "no graphviz"],
)
def test_missing_package_is_named_and_numpy_gets_its_name_back(setting, statement, said):
    error, left = output_of(setting + IMPORT.format(statement=statement))
    assert error.startswith(said)
    assert left == "[] False"


@pytest.mark.skipif("bool" in vars(np), reason="this NumPy has np.bool")
def test_numpy_is_as_it_was_after_the_import():
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


def test_package_alone_imports_no_mxnet():
    said = output_of("""
    import sys
    import adapters
    print("gluon_loader" in dir(adapters), "mxnet" in sys.modules)
    adapters.ClosedError
    print("mxnet" in sys.modules)
    """)
    assert said == ["True False", "False"]


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


def test_collector_asks_nothing_of_ours_at_the_end():
    """It said 'NoneType' object has no attribute 'get_stats', once in a while."""
    assert output_of("""
    import atexit, gc
    atexit.register(lambda: print(gc.callbacks))
    import adapters.gluon
    print(len(gc.callbacks))
    """) == ["1", "[]"]
