"""The package as a whole: who imports whom, what is public and typed, how a wheel is made."""

from __future__ import annotations

import ast
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
    "progress": set(),
    "readahead": set(),
    "seeding": {"generators"},
    "failure": set(),
    "ranks": set(),
    "remote": {"images"},  # The kernel, for CRCs.
    "records": {"errors", "readahead", "images", "remote", "signatures"},
    "images": {"arguments", "errors", "generators", "signatures"},
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
        "progress",
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
    "diagnosis": ANY,
    "planning": {"errors"},
    "selecting": {"arguments", "batch", "sources", "structure"},
    "machine": {"engine", "images"},
    "cli": ANY
    | {"diagnosis", "keras", "gluon", "machine", "packing", "planning", "progress", "selecting"}
    | {"__init__"},
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
def test_imports_are_those_allowed(path):
    also = frozenset({"diagnosis"} if path.name == DIAGNOSED else ())
    assert wrong_imports(room_of(path), path.read_text(), also) == []


def test_engine_knows_a_protocol_of_batches():
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


def test_imports_have_no_circle():
    """Also none for the sake of types; packages import their modules, and not the other way."""
    modules = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path.read_text()
        for path in FILES
    }
    named = {name.removesuffix(".__init__"): source for name, source in modules.items()}
    assert circle_among(named) == []


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


def test_diagnosis_names_no_framework():
    files = set((PACKAGE / "diagnosis").glob("*.py")) - {REGISTRY}
    assert {path.name: found for path in files if (found := named(path.read_text()))} == {}
    assert named(REGISTRY.read_text()) >= {"keras", "mxnet", "gluon", "torch"}


def test_engine_names_no_framework():
    files = (PACKAGE / "engine").glob("*.py")
    assert {path.name: found for path in files if (found := named(path.read_text()))} == {}


def test_diagnosed_is_imported_by_the_registry_alone():
    """Importing a face doesn't import the diagnosis; the registry does, when it is asked."""
    names = {name for path in FILES for name in imported(path.read_text())}
    assert [name for name in names if DIAGNOSED.removesuffix(".py") in name.split(".")] == []


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


def test_import_of_adapters_is_of_no_framework():
    script = "import adapters, adapters.engine, sys; adapters.WorkerError; print(*sys.modules)"
    assert set(run(script).split()) & FRAMEWORKS == set()


def test_names_for_type_checkers_are_public():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    names = [alias.name for node in block.body for alias in node.names]
    assert sorted([*names, "__version__"]) == sorted(adapters.__all__)


def test_names_that_are_public_are_visible():
    assert sorted(dir(adapters)) == sorted(adapters.__all__) == adapters.__all__


def test_names_are_all_there():
    """In a process of its own: asking for them imports the frameworks."""
    script = (
        "import adapters\n"
        "for name in ('keras', 'gluon', 'transforms', *adapters.__all__):\n"
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
    # Front ends are attributes. What makes a loader is its class.
    expected = {name: name for name in names} | {"__version__": "", "gluon_loader": "DataLoader"}
    expected |= {face: f"adapters.{face}" for face in ("keras", "gluon", "transforms")}
    if find_spec("mxnet") is None:
        expected |= {"gluon_loader": "1", "gluon": "1"}  # The command that brings it.
    assert dict(line.split(" ", 1) for line in lines) == expected


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


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a package with a module that notes whether the collector is on."""
    folder = tmp_path / "lazy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "noting.py").write_text("import gc\nenabled = gc.isenabled()\n")
    (folder / "failing.py").write_text("raise ValueError('spoilt')\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("lazy_package")
    yield "lazy_package"
    for name in [name for name in sys.modules if name.startswith("lazy_package")]:
        del sys.modules[name]


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_lazy_import_leaves_the_collector_as_it_was(collects, fails, package):
    look_up = bound(package, {"enabled": f"{package}.noting", "failing": f"{package}.failing"})
    if not collects:
        gc.disable()
    try:
        if fails:
            with pytest.raises(ValueError, match="spoilt"):
                look_up("failing")
        else:
            assert look_up("enabled") is False
        assert gc.isenabled() is collects
    finally:
        gc.enable()


# --- types ---

PROGRAM = ROOT / "tests" / "typing" / "program.py"


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory):
    """What mypy --strict says of a program."""
    pytest.importorskip("mypy", reason="mypy is in the extra test")
    cache = tmp_path_factory.mktemp("mypy")

    def said(path: Path) -> tuple[int, str]:
        command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", cache]
        finished = subprocess.run(
            # Of the package itself, mypy's own run in CI tells.
            [*map(str, command), "--follow-imports=silent", str(path)],
            cwd=path.parent,
            env={**os.environ, "MYPYPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=110,
        )
        return finished.returncode, finished.stdout + finished.stderr

    return said


def test_mypy_accepts_a_program(checked, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.read_text())
    status, said = checked(path)
    assert status == 0, said


WRONG = {
    "number: int = SafeSequence([1], workers=2).state_dict()": "assignment",
    "SafeSequence([1], shufle=True)": "call-arg",
    'SafeSequence([1], workers="many")': "arg-type",
    'pack("photos/", "train", format="tfrecord", resize="256")': "arg-type",
    "from adapters import nothing": "attr-defined",
}


def test_mypy_refuses_what_is_wrong(checked, tmp_path):
    path = tmp_path / "program.py"
    path.write_text("\n".join(["from adapters import SafeSequence, pack", *WRONG, ""]))
    status, said = checked(path)
    assert status == 1, said
    for number, (line, error) in enumerate(WRONG.items(), 2):
        told = [each for each in said.splitlines() if each.startswith(f"program.py:{number}:")]
        assert any(f"[{error}]" in each for each in told), (line, said)


# --- how a wheel is made ---

PACKAGING = ROOT / "packaging"


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
