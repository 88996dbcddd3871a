"""The package as a whole: who imports whom, what is public and typed, how a wheel is made."""

from __future__ import annotations

import ast
import functools
import gc
import graphlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import adapters
from adapters.lazily import bound

PACKAGE = Path(adapters.__file__).parent
ROOT = Path(__file__).parents[1]
FILES = sorted(PACKAGE.rglob("*.py"))
# Which packages and modules each may import, besides itself.
BELOW_ENGINE = (
    "alignment arguments batch clock errors generator_search generators ownership seeding sources "
    "structure user_code"
)
ANY = f"{BELOW_ENGINE} engine images ranks records remote viewing"
ALLOWED = {
    "errors": "",
    "alignment": "",
    "arguments": "generators",
    "generators": "",
    "structure": "",
    "ownership": "structure",
    "generator_search": "",
    "clock": "",
    "cpus": "",
    "lazily": "",
    "signatures": "errors",
    "user_code": "",
    "progress": "",
    "readahead": "",
    "seeding": "generators",
    "failure": "",
    "ranks": "",
    "remote": "images",  # The kernel, for CRCs.
    "records": "errors images readahead remote signatures",
    "images": "arguments errors generators signatures",
    "sources": "arguments clock errors generators images ownership readahead records "
    "remote signatures structure",
    "packing": "arguments batch cpus errors failure generators images records remote selecting "
    "sources structure user_code",
    "batch": "alignment arguments errors generators ownership readahead seeding sources structure "
    "user_code",
    "collating": "alignment arguments batch",
    "transforms": "arguments generators images structure user_code",
    "viewing": "arguments batch progress remote selecting sources structure user_code",
    "engine": "alignment batch clock cpus errors failure generator_search generators "
    "seeding signatures structure user_code",
    "resuming": "",
    "replaying": f"{BELOW_ENGINE} images viewing",
    "keras": f"{ANY} replaying resuming",
    "gluon": f"{ANY} replaying resuming",
    "diagnosis": ANY,
    "planning": "errors",
    "selecting": "arguments batch generators sources structure",
    "machine": "engine images",
    "cli": f"{ANY} __init__ diagnosis gluon keras machine packing planning progress selecting",
    "__main__": "cli",
    "__init__": f"{ANY} collating diagnosis gluon keras machine packing selecting",
}
# Of the package batch, the engine knows the protocol and what a batch is called.
ENGINE_KNOWS = {"adapters.batch.plan"}
FRAMEWORKS = {"keras", "tf_keras", "tensorflow", "mxnet", "torch", "jax"}
# What a front end tells the diagnosis, which imports front ends by name.
DIAGNOSED = "diagnosed.py"
OWN_FRAMEWORK = {"keras": {"keras", "jax", "tensorflow", "torch"}, "gluon": {"mxnet"}}
# What every package's own file may use.
HELPS_PACKAGES = "lazily"


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(tree: ast.AST) -> Iterator[str]:
    """Dotted names of all that a file imports: at its top, in functions, and for type checkers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("import_module", "__import__", "find_spec"):
                yield str(node.args[0].value)


def wrong_imports(path: Path) -> list[str]:
    """What a file imports and should not."""
    package, wrong = package_of(path), []
    also = {"diagnosis"} if path.name == DIAGNOSED else set()
    for name in imported(tree_of(path)):
        root, _, rest = name.partition(".")
        other = rest.partition(".")[0]
        if root == "adapters":
            other = other if other in ALLOWED else "__init__"
            right = other in {*ALLOWED[package].split(), *also, package, HELPS_PACKAGES}
        else:
            right = root not in FRAMEWORKS - OWN_FRAMEWORK.get(package, set())
        if not right:
            wrong.append(name)
    return wrong


def test_imports_are_those_allowed():
    assert {str(path): wrong for path in FILES if (wrong := wrong_imports(path))} == {}


def test_engine_knows_a_protocol_of_batches():
    names = {
        ".".join(name.split(".")[:3])
        for path in (PACKAGE / "engine").glob("*.py")
        for name in imported(tree_of(path))
        if name.startswith("adapters.batch")
    }
    assert names == ENGINE_KNOWS


def at_the_top(node: ast.AST) -> Iterator[str]:
    """Dotted names that a file imports before any of its functions runs, or for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield from imported(child)
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from at_the_top(child)


def test_imports_have_no_circle():
    """Also none for the sake of types; packages import their modules, and not the other way."""
    modules = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): tree_of(path)
        for path in FILES
    }
    trees = {name.removesuffix(".__init__"): tree for name, tree in modules.items()}
    graph = {}
    for name, tree in trees.items():
        found = {each if each in trees else each.rpartition(".")[0] for each in at_the_top(tree)}
        graph[name] = (found & set(trees)) - {name}
    graphlib.TopologicalSorter(graph).prepare()  # Raises CycleError with the circle.


FRONT_ENDS = FRAMEWORKS | {"gluon", "safesequence", "pydataset"}


def named(path: Path) -> set[str]:
    """Words for frameworks and front ends in a file's code and strings, but no docstrings."""
    tree = tree_of(path)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, kinds)]
    documented = {id(each.value) for body in bodies for each in body if isinstance(each, ast.Expr)}
    words = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documented:
            words.add(str(node.value))
        for field in ("id", "attr", "arg", "name", "module"):
            words.add(str(getattr(node, field, "")))
    return {name for name in FRONT_ENDS if any(name in word.lower() for word in words)}


def test_engine_names_no_framework():
    files = (PACKAGE / "engine").glob("*.py")
    assert {path.name: found for path in files if (found := named(path))} == {}


def test_diagnosed_is_imported_on_demand_alone():
    """Importing a front end doesn't import the diagnosis; the diagnosis imports the front end."""
    names = {name for path in FILES for name in imported(tree_of(path))}
    assert [name for name in names if DIAGNOSED.removesuffix(".py") in name.split(".")] == []


# --- public names ---


def ended(*command: Any, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_import_of_adapters_is_of_no_framework():
    script = "import adapters, adapters.engine, sys; adapters.WorkerError; print(*sys.modules)"
    finished = ended(sys.executable, "-W", "error", "-c", script)
    assert (finished.stderr, set(finished.stdout.split()) & FRAMEWORKS) == ("", set())


def test_names_for_type_checkers_are_public():
    tree = tree_of(PACKAGE / "__init__.py")
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    names = [alias.name for node in block.body for alias in node.names]
    assert sorted([*names, "__version__"]) == sorted(adapters.__all__)


def test_names_that_are_public_are_visible():
    assert sorted(dir(adapters)) == sorted(adapters.__all__) == adapters.__all__


@pytest.mark.filterwarnings("default")  # Importing the frameworks warns.
def test_names_are_all_there():
    names = {name: name for name in adapters.__all__ if name != "__version__"}
    # Front ends are attributes. What makes a loader is its class.
    names |= {"gluon_loader": "DataLoader"}
    names |= {name: f"adapters.{name}" for name in ("keras", "gluon", "transforms")}
    for name, expected in names.items():
        if find_spec("mxnet") is None and name in ("gluon", "gluon_loader"):
            with pytest.raises(ImportError, match="pip install"):
                getattr(adapters, name)
        else:
            assert getattr(adapters, name).__name__ == expected


def test_name_that_is_unknown():
    with pytest.raises(AttributeError, match="module 'adapters' has no attribute 'Sequence'"):
        _ = adapters.Sequence


def test_errors_have_one_base():
    assert all(
        issubclass(getattr(adapters, name), adapters.AdapterError)
        for name in adapters.__all__
        if name.endswith("Error")
    )


# --- names that are bound when they are first used ---


@pytest.mark.parametrize("collects", [True, False])
def test_lazy_import_leaves_the_collector_as_it_was(collects):
    """Also if the module can't be imported."""
    look_up = bound("adapters", {"nothing": "adapters.nothing"})
    if not collects:
        gc.disable()
    try:
        with pytest.raises(ModuleNotFoundError):
            look_up("nothing")
        assert gc.isenabled() is collects
    finally:
        gc.enable()


# --- types ---

PROGRAM = ROOT / "tests" / "typing" / "program.py"


WRONG = {
    "number: int = SafeSequence([1], workers=2).state_dict()": "assignment",
    "SafeSequence([1], shufle=True)": "call-arg",
    'SafeSequence([1], workers="many")': "arg-type",
    'pack("photos/", "train", format="tfrecord", resize="256")': "arg-type",
    "from adapters import nothing": "attr-defined",
}


def test_mypy_accepts_a_program_and_refuses_what_is_wrong(tmp_path):
    """By ``--strict``, in one run, as it reads NumPy's types each time."""
    pytest.importorskip("mypy", reason="mypy is in the extra test")
    (tmp_path / "right.py").write_text(PROGRAM.read_text())
    lines = ["from adapters import SafeSequence, pack", *WRONG, ""]
    (tmp_path / "wrong.py").write_text("\n".join(lines))
    # Of the package itself, mypy's own run in CI tells.
    options = ["--strict", "--config-file=", "--follow-imports=silent", "--cache-dir", "cache"]
    finished = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "right.py", "wrong.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
    )
    said = finished.stdout + finished.stderr
    assert finished.returncode == 1, said
    assert "right.py" not in said, said
    for number, (line, error) in enumerate(WRONG.items(), 2):
        told = [each for each in said.splitlines() if each.startswith(f"wrong.py:{number}:")]
        assert any(f"[{error}]" in each for each in told), (line, said)


# --- how a wheel is made ---

PACKAGING = ROOT / "packaging"


needs_checkout = pytest.mark.skipif(
    not (PACKAGING.is_dir() and shutil.which("bash")), reason="of a checkout, with bash"
)


@needs_checkout
def test_wheel_of_another_archive_is_refused(tmp_path):
    archive = tmp_path / "libjpeg-turbo.tar.gz"
    archive.write_bytes(b"something else")
    process = ended("bash", PACKAGING / "libjpeg.sh", tmp_path / "prefix", archive)
    assert process.returncode == 1
    assert "with SHA-256 254f3642b04e309fee77" in process.stderr
    assert f"got {archive}" in process.stderr


@needs_checkout
@pytest.mark.parametrize("script", ["build_wheel.sh", "libjpeg.sh", "test_wheel.sh"])
def test_wheel_scripts_are_sound(script):
    process = ended("bash", "-n", PACKAGING / script)
    assert (process.returncode, process.stderr) == (0, "")
    assert os.access(PACKAGING / script, os.X_OK)


@needs_checkout
def test_wheel_without_its_library_fails(tmp_path):
    pytest.importorskip("setuptools", reason="what builds")
    process = ended(sys.executable, "setup.py", "--version", ADAPTERS_JPEG=str(tmp_path))
    assert process.returncode != 0
    assert "ADAPTERS_JPEG must be a folder that packaging/libjpeg.sh made" in process.stderr
