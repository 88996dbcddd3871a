"""Writes reference.md from the docstrings: `python docs/make_reference.py`.

The files are read, not imported, so that neither Keras nor MXNet is needed. A public name that is
in no group below comes into the last one. `tests/test_reference.py` fails where the page is older
than the docstrings.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "adapters"
PAGE = ROOT / "docs" / "reference.md"
GROUPS = {
    "Keras": ["SafeSequence"],
    "Gluon": ["gluon_loader"],
    "Records and images": [
        "open_records",
        "open_images",
        "ImageDecoder",
        "Feature",
        "Boxes",
        "Points",
        "RecordWriter",
        "pack",
    ],
    "Batches": [
        "pad",
        "ragged",
        "packed",
        "adapters.transforms.Chain",
        "adapters.transforms.ColorJitter",
        "adapters.transforms.CutMix",
        "adapters.transforms.MixUp",
        "adapters.transforms.OneHot",
        "adapters.transforms.RandomErasing",
    ],
    "Finding out": ["diagnose", "show_versions", "statistics"],
    "Errors": ["AdapterError", "RecordError", "WorkerError", "ClosedError"],
    "Sources, order, transforms": [],
}
# Of these, the other methods are for the package's own use.
METHODS = {
    "ImageDecoder": {"shape"},
    "RecordWriter": {"write", "close"},
    "Feature": set[str](),
    "Boxes": {"im2rec"},
    "Points": set[str](),
    "Chain": set[str](),
    "ColorJitter": set[str](),
    "CutMix": set[str](),
    "MixUp": set[str](),
    "OneHot": set[str](),
    "RandomErasing": set[str](),
}
# Whose other names come behind these; DataLoader is gluon_loader.
ROOMS = {"Keras": "keras", "Gluon": "gluon"}
ALIASES = {"gluon_loader": "DataLoader"}
HEAD = """# API reference

Made from the docstrings by `python docs/make_reference.py`. Everything is imported from `adapters`,
unless its heading says otherwise.
"""
_SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Example|Attributes):$")
_ENTRY = re.compile(r"^(\*{0,2}\w[\w, *]*):(?: |$)")

Named = ast.ClassDef | ast.FunctionDef


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


def page() -> str:
    """The page's text."""
    found = definitions()
    public = [name for name in public_names() if name in found]
    groups = {
        title: [name for name in names if name in public or ("." in name and name in found)]
        for title, names in GROUPS.items()
    }
    for title, room in ROOMS.items():
        more = [f"adapters.{room}.{name}" for name in public_names(room) if name not in public]
        shown = [name for name in more if name in found and short(name) not in ALIASES.values()]
        groups[title] += shown
    grouped = {name for names in groups.values() for name in names}
    groups[list(groups)[-1]] += [name for name in public if name not in grouped]
    parts = [HEAD]
    for title, names in groups.items():
        if names:
            listed = ", ".join(f"[{name}](#{anchor(name)})" for name in names)
            parts.append(f"- {title}: {listed}")
    for title, names in groups.items():
        if names:
            parts += [f"\n## {title}", *(entry(name, found) for name in names)]
    return "\n".join(parts) + "\n"


def public_names(room: str = "") -> list[str]:
    """`adapters.__all__`, without the version, or that of a room."""
    for node in ast.parse((PACKAGE / room / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if name != "__version__"]
    raise ValueError(f"adapters/{room}/__init__.py must have an __all__")


def definitions() -> dict[str, Named]:
    """Classes and functions of the package's files by name; of two, the one that tells more.

    Also by name behind the folder's, as in "adapters.keras.Resume".
    """
    found: dict[str, Named] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, Named) and not node.name.startswith("_"):
                room = path.relative_to(ROOT).parts[:-1]
                for name in (node.name, ".".join([*room, node.name])):
                    rival = found.get(name)
                    if rival is None or len(docstring(node)) > len(docstring(rival)):
                        found[name] = node
    for name in set(ALIASES) - set(found):
        found[name] = found[ALIASES[name]]
    return found


def short(name: str) -> str:
    """Without the package."""
    return name.rpartition(".")[2]


def anchor(name: str) -> str:
    """What a heading of that name is called in links."""
    return re.sub(r"[^\w-]", "", name.lower())


def docstring(node: Named) -> str:
    """Without its indentation."""
    return ast.get_docstring(node) or ""


def entry(name: str, found: dict[str, Named]) -> str:
    """A name's part of the page."""
    node = found[name]
    made = re.sub(rf"^{node.name}\b", short(name), signature(node, found))
    parts = [f"\n### {name}\n", f"```text\n{made}\n```\n", rendered(docstring(node))]
    if isinstance(node, ast.ClassDef):
        for method in methods(node, found):
            parts.append(f"\n**`{call(method)}`**: {inline(docstring(method))}")
    return "\n".join(part for part in parts if part)


def bases(node: ast.ClassDef, found: dict[str, Named]) -> Iterator[ast.ClassDef]:
    """A class and those of its bases that are the package's own; of two, that of its folder."""
    yield node
    of_rooms = (key.rpartition(".")[0] for key, each in found.items() if each is node)
    room = max(of_rooms, default="")
    for base in node.bases:
        name = ast.unparse(base)  # One of another library has a dot, as mx.gluon.data.DataLoader.
        parent = found.get(f"{room}.{name}", found.get(name))
        if isinstance(parent, ast.ClassDef) and parent is not node:
            yield from bases(parent, found)


def methods(node: ast.ClassDef, found: dict[str, Named]) -> list[ast.FunctionDef]:
    """The public ones with a docstring, in the order of the files."""
    wanted = METHODS.get(node.name)
    seen: dict[str, ast.FunctionDef] = {}
    for each in bases(node, found):
        for member in each.body:
            if isinstance(member, ast.FunctionDef) and docstring(member):
                public = not member.name.startswith("_") and not _is_setter(member)
                if public and (wanted is None or member.name in wanted):
                    seen.setdefault(member.name, member)
    return list(seen.values())


def _is_setter(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(each).endswith(".setter") for each in node.decorator_list)


def signature(node: Named, found: dict[str, Named]) -> str:
    """As one would write it, in lines of 90 characters."""
    if isinstance(node, ast.ClassDef):
        for each in bases(node, found):
            made = [m for m in each.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"]
            if made:
                return _call(node.name, _arguments(made[0], skip_self=True))
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
        if fields:
            return _call(node.name, [ast.unparse(each) for each in fields])
        return node.name
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return _call(node.name, _arguments(node), returns)


def call(node: ast.FunctionDef) -> str:
    """A method in one line; a property without parentheses."""
    if any("property" in ast.unparse(each) for each in node.decorator_list):
        return node.name
    return f"{node.name}({', '.join(_arguments(node, skip_self=True))})"


def _arguments(node: ast.FunctionDef, skip_self: bool = False) -> list[str]:
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    words = [_argument(*pair) for pair in zip(plain, defaults)][1 if skip_self else 0 :]
    if given.vararg:
        words.append(f"*{given.vararg.arg}")
    elif given.kwonlyargs:
        words.append("*")
    words += [_argument(*pair) for pair in zip(given.kwonlyargs, given.kw_defaults)]
    if given.kwarg:
        words.append(f"**{given.kwarg.arg}")
    return words


def _argument(given: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(given.annotation)}" if given.annotation else ""
    value = "" if default is None else f"{' = ' if kind else '='}{ast.unparse(default)}"
    return f"{given.arg}{kind}{value}"


def _call(name: str, arguments: list[str], behind: str = "") -> str:
    line = f"{name}({', '.join(arguments)}){behind}"
    if len(line) <= 90:
        return line
    inner = "".join(f"    {each},\n" for each in arguments)
    return f"{name}(\n{inner}){behind}"


def inline(text: str) -> str:
    """A docstring's first paragraph, in one line."""
    return " ".join(plain(text.split("\n\n")[0]).split())


def plain(text: str) -> str:
    """With Markdown's single backticks."""
    return text.replace("``", "`")


def rendered(text: str) -> str:
    """A docstring as Markdown."""
    parts: list[str] = []
    for title, body in sections(text):
        if title is None:
            parts.append(plain(body))
        elif title == "Example":
            parts.append(f"```pycon\n{body}\n```")
        elif title in ("Args", "Raises", "Attributes"):
            parts.append(f"**{title}**\n\n{_entries(body)}")
        else:
            parts.append(f"**{title}**: {plain(' '.join(body.split()))}")
    return "\n\n".join(parts)


def sections(text: str) -> Iterator[tuple[str | None, str]]:
    """A docstring's parts; what stands between headings has the title None."""
    title: str | None = None
    lines: list[str] = []
    for line in [*text.splitlines(), None]:
        match = _SECTION.match(line) if line is not None else None
        ends = title is not None and line and not line.startswith(" ") and match is None
        if line is None or match or ends:
            body = inspect.cleandoc(textwrap.dedent("\n".join(lines)))
            if body:
                yield title, body
            title, lines = (match.group(1), []) if match else (None, [line or ""])
        else:
            lines.append(line)


def _entries(body: str) -> str:
    """Arguments or exceptions as a list."""
    entries: list[str] = []
    for line in body.splitlines():
        match = _ENTRY.match(line)
        if match:
            entries.append(f"- `{match.group(1)}`:{line[match.end(1) + 1 :]}")
        elif entries:
            entries[-1] += f" {line.strip()}"
        else:
            entries.append(line)
    return "\n".join(plain(entry.rstrip()) for entry in entries)


if __name__ == "__main__":
    main()
