"""The package as a whole: who imports whom, and what is public."""

from __future__ import annotations

import ast
import graphlib
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import adapters

PACKAGE = Path(adapters.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# Which rooms a room may look into, besides itself: "the way through them" in the design.
BELOW_ENGINE = {
    "alignment",
    "arguments",
    "batch",
    "generator_search",
    "clock",
    "errors",
    "generators",
    "ownership",
    "seeding",
    "sources",
    "structure",
    "user_code",
}
ANY = BELOW_ENGINE | {"engine", "images", "ranks", "records", "remote", "viewing"}
ALLOWED = {
    "errors": set(),
    "alignment": set(),
    "arguments": {"generators"},
    "generators": set(),
    "structure": set(),
    "ownership": {"structure"},
    "generator_search": set(),
    "clock": set(),
    "cpus": set(),
    "lazily": set(),
    "signatures": set(),
    "user_code": set(),
    "markup": set(),
    "readahead": set(),
    "seeding": {"generators"},
    "failure": set(),
    "ranks": set(),
    "remote": {"images"},  # The kernel, for CRCs.
    "records": {"errors", "readahead", "images", "remote", "signatures"},
    "images": {"errors", "generators", "signatures"},
    "sources": {
        "arguments",
        "readahead",
        "records",
        "remote",
        "images",
        "clock",
        "ownership",
        "structure",
        "generators",
        "errors",
    },
    "packing": {
        "arguments",
        "batch",
        "cpus",
        "errors",
        "failure",
        "generators",
        "images",
        "records",
        "remote",
        "selecting",
        "sources",
        "structure",
        "user_code",
    },
    "batch": {
        "alignment",
        "arguments",
        "errors",
        "readahead",
        "generators",
        "ownership",
        "seeding",
        "sources",
        "structure",
        "user_code",
    },
    "collating": {"alignment", "arguments", "batch"},
    "transforms": {"arguments", "generators", "images", "structure", "user_code"},
    "viewing": {
        "arguments",
        "batch",
        "selecting",
        "sources",
        "structure",
        "user_code",
    },
    "engine": {
        "alignment",
        "batch",
        "generator_search",
        "clock",
        "cpus",
        "errors",
        "failure",
        "generators",
        "seeding",
        "structure",
        "user_code",
    },
    "resuming": set(),
    "replaying": BELOW_ENGINE | {"images", "viewing"},
    "keras": ANY | {"replaying", "resuming"},
    "gluon": ANY | {"replaying", "resuming"},
    "diagnosis": ANY | {"markup"},
    "planning": {"errors"},
    "selecting": {"arguments", "batch", "sources", "structure"},
    "machine": {"engine", "images"},
    "cli": ANY
    | {"diagnosis", "keras", "gluon", "machine", "packing", "planning", "selecting", "__init__"},
    "__init__": ANY
    | {"collating", "diagnosis", "keras", "gluon", "machine", "packing", "selecting"},
}
# Of the batch room, the engine knows the protocol and what a batch is called.
ENGINE_KNOWS = {"adapters.batch.plan", "adapters.batch.key"}
FRAMEWORKS = {"keras", "tf_keras", "tensorflow", "mxnet", "torch", "jax"}
# What a face tells the diagnosis, which knows faces by its registry alone.
DIAGNOSED = "diagnosed.py"
# TensorFlow is imported nowhere: Keras knows it.
OWN_FRAMEWORK = {"keras": {"keras", "jax", "torch"}, "gluon": {"mxnet"}}


# What every room's own file may use.
HELPS_PACKAGES = "lazily"


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(source: str) -> Iterator[str]:
    """Dotted names of all that a file imports: at its top, in functions, and for type checkers."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("import_module", "__import__", "find_spec"):
                yield str(node.args[0].value)


def wrong_imports(room: str, source: str, also: frozenset[str] = frozenset()) -> list[str]:
    """What a file of this room imports and should not; it may look into the rooms ``also``, too."""
    wrong = []
    for name in imported(source):
        package, _, rest = name.partition(".")
        other = rest.partition(".")[0]
        if package == "adapters":
            other = other if other in ALLOWED else "__init__"
            right = other in ALLOWED[room] | also | {room, HELPS_PACKAGES}
        else:
            right = package not in FRAMEWORKS - OWN_FRAMEWORK.get(room, set())
        if not right:
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_what_its_room_may(path):
    also = frozenset({"diagnosis"} if path.name == DIAGNOSED else ())
    assert wrong_imports(room_of(path), path.read_text(), also) == []


@pytest.mark.parametrize(
    ("room", "source", "wrong"),
    [
        ("errors", "from adapters.batch.order import Order", "adapters.batch.order.Order"),
        ("records", "def f():\n    from adapters.sources import x", "adapters.sources.x"),
        ("engine", "from adapters.keras import SafeSequence", "adapters.keras.SafeSequence"),
        ("gluon", "import numpy, keras.utils", "keras.utils"),
        ("keras", "if TYPE_CHECKING:\n    import tensorflow as tf", "tensorflow"),
        ("cli", "import importlib\nimportlib.import_module('mxnet')", "mxnet"),
        ("keras", "from adapters.diagnosis.timing import timed", "adapters.diagnosis.timing.timed"),
        ("diagnosis", "from adapters.gluon import gluon_loader", "adapters.gluon.gluon_loader"),
    ],
)
def test_a_wrong_import_is_noticed(room, source, wrong):
    assert wrong_imports(room, source) == [wrong]


def test_the_engine_knows_a_protocol_and_no_kind_of_batch():
    names = {
        ".".join(name.split(".")[:3])
        for path in (PACKAGE / "engine").glob("*.py")
        for name in imported(path.read_text())
        if name.startswith("adapters.batch")
    }
    assert names == ENGINE_KNOWS


def at_the_top(node: ast.AST) -> Iterator[str]:
    """Dotted names that a file imports before any of its functions runs, or for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield from imported(ast.unparse(child))
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from at_the_top(child)


def circle_among(sources: dict[str, str]) -> list[str]:
    """Modules that import each other in a circle; none where there is no such thing."""
    graph = {}
    for name, source in sources.items():
        found = at_the_top(ast.parse(source))
        modules = {each if each in sources else each.rpartition(".")[0] for each in found}
        graph[name] = (modules & set(sources)) - {name}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other():
    """Also none for the sake of types; packages import their modules, and not the other way."""
    modules = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path.read_text()
        for path in FILES
    }
    named = {name.removesuffix(".__init__"): source for name, source in modules.items()}
    assert circle_among(named) == []


def test_a_circle_for_types_is_found():
    sources = {
        "adapters.a": "from __future__ import annotations\nfrom adapters.b import x",
        "adapters.b": "if TYPE_CHECKING:\n    from adapters import a",
        "adapters.c": "def later():\n    import adapters.c.d",
    }
    assert set(circle_among(sources)) == {"adapters.a", "adapters.b"}


REGISTRY = PACKAGE / "diagnosis" / "registry.py"
FACES = FRAMEWORKS | {"gluon", "safesequence", "pydataset"}


def named(source: str) -> set[str]:
    """Words for frameworks and faces in a file's code and strings; docstrings are for people."""
    tree = ast.parse(source)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, kinds)]
    documented = {id(each.value) for body in bodies for each in body if isinstance(each, ast.Expr)}
    words = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documented:
            words.add(str(node.value))
        for field in ("id", "attr", "arg", "name", "module"):
            words.add(str(getattr(node, field, "")))
    return {face for face in FACES if any(face in word.lower() for word in words)}


def test_the_diagnosis_names_no_framework_and_no_face_but_in_its_registry():
    files = set((PACKAGE / "diagnosis").glob("*.py")) - {REGISTRY}
    assert {path.name: found for path in files if (found := named(path.read_text()))} == {}
    assert named(REGISTRY.read_text()) >= {"keras", "mxnet", "gluon", "torch"}


def test_the_engine_names_no_framework():
    files = (PACKAGE / "engine").glob("*.py")
    assert {path.name: found for path in files if (found := named(path.read_text()))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nsys.modules.get('mxnet')",
        "def f(x):\n    return x.keras_step",
        'def f():\n    """Of Keras."""\n    return "a PyDataset"',
        "from adapters.gluon.loader import x",
    ],
)
def test_a_framework_that_is_named_is_noticed(source):
    assert len(named(source)) == 1


def test_what_a_face_tells_the_diagnosis_is_imported_by_nobody():
    """Importing a face doesn't import the diagnosis; the registry does, when it is asked."""
    names = {name for path in FILES for name in imported(path.read_text())}
    assert [name for name in names if DIAGNOSED.removesuffix(".py") in name.split(".")] == []


def test_every_file_is_in_a_known_room():
    assert {room_of(path) for path in FILES} <= set(ALLOWED)


def test_types_are_shipped():
    assert (PACKAGE / "py.typed").is_file()


# --- public names ---


def run(script: str, **environment: str) -> str:
    """What a script prints in a new process."""
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **environment},
    )
    assert finished.stderr == ""
    return finished.stdout


def test_importing_adapters_imports_no_framework():
    script = "import adapters, adapters.engine, sys; print(*sys.modules)"
    assert set(run(script).split()) & FRAMEWORKS == set()


@pytest.mark.parametrize("face", ["keras", "gluon", "transforms"])
def test_a_face_is_an_attribute_of_the_package(face):
    script = (
        "import adapters\n"
        f"try: print(adapters.{face}.__name__)\n"
        f"except ImportError as error: print('adapters.{face}' * str(error).count('pip install'))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100
    )
    assert found.stdout.split()[:1] == [f"adapters.{face}"]


def test_asking_for_an_error_imports_no_framework():
    script = "import adapters, sys; adapters.WorkerError; print(*sys.modules)"
    assert set(run(script).split()) & FRAMEWORKS == set()


def test_the_names_for_type_checkers_are_the_public_names():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    names = [alias.name for node in block.body for alias in node.names]
    assert sorted([*names, "__version__"]) == sorted(adapters.__all__)


def test_the_public_names_are_the_visible_names():
    assert sorted(dir(adapters)) == sorted(adapters.__all__) == adapters.__all__


def test_every_public_name_is_there():
    """In a process of its own: asking for them imports the frameworks."""
    script = (
        "import adapters\n"
        "for name in adapters.__all__:\n"
        "    try: print(name, getattr(getattr(adapters, name), '__name__', ''))\n"
        "    except ImportError as error: print(name, str(error).count('pip install'))"
    )
    lines = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
        env={**os.environ, "KERAS_BACKEND": "jax"},
    ).stdout.splitlines()
    names = [name for name in adapters.__all__ if name != "__version__"]
    # What makes a loader is its class.
    expected = {name: name for name in names} | {"__version__": "", "gluon_loader": "DataLoader"}
    if find_spec("mxnet") is None:
        expected["gluon_loader"] = "1"  # The command that brings it.
    assert dict(line.split(" ", 1) for line in lines) == expected


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'adapters' has no attribute 'Sequence'"):
        _ = adapters.Sequence


def test_errors_have_one_base():
    assert all(
        issubclass(getattr(adapters, name), adapters.AdapterError)
        for name in adapters.__all__
        if name.endswith("Error")
    )
