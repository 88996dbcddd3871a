"""``adapters completion``: a bash or zsh script that completes commands, options and choices.

The script is generated from the parser. Values without choices and type are completed as files.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from typing import Any

from adapters.cli.main import parser_of

SHELLS = ("bash", "zsh")
_BASH = """\
_adapters() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command= words= word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in {names}) command=$word; break;; esac
  done
  case $command:$prev in
{values}
  esac
  case $command in
{commands}
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur"
    if [[ -n $command && $cur != -* ]]; then compgen -f -- "$cur"; fi)
}}
complete -o filenames -F _adapters adapters
"""
_ZSH = """\
#compdef adapters
_adapters() {{
  local -a commands=(
{names}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    _arguments {options}
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{commands}
  esac
}}
compdef _adapters adapters
"""


def add_parser(subparsers: Any) -> None:
    """Add ``completion`` to the command line."""
    completion = subparsers.add_parser(
        "completion",
        help="a script for your shell: source <(adapters completion bash)",
    )
    completion.add_argument("shell", choices=SHELLS)
    completion.set_defaults(run=run_completion)


def run_completion(options: argparse.Namespace) -> int:
    """Run ``adapters completion``."""
    print(script_of(parser_of(), options.shell), end="")
    return 0


def script_of(parser: argparse.ArgumentParser, shell: str) -> str:
    """Generate the script for a shell."""
    commands = _commands(parser)
    if shell == "zsh":
        return _ZSH.format(
            names="\n".join(
                f"    {shlex.quote(f'{_escaped(name)}:{helps}')}" for name, (helps, _) in commands
            ),
            options=" ".join(_zsh_words(parser)),
            commands="\n".join(
                f"    {name}) _arguments -s {' '.join(_zsh_words(one))};;"
                for name, (_, one) in commands
            ),
        )
    names = [name for name, _ in commands]
    values = [
        f"    {name}:{option}) {_bash_value(action)}"
        for name, (_, one) in commands
        for action in one._actions
        for option in action.option_strings
        if action.nargs != 0
    ]
    words = {"": [*names, *_options(parser)]}
    words |= {name: [*_options(one), *_choices(one)] for name, (_, one) in commands}
    return _BASH.format(
        names="|".join(names),
        values="\n".join(values),
        commands="\n".join(
            f"    {name or chr(39) * 2}) words={shlex.quote(' '.join(each))};;"
            for name, each in words.items()
        ),
    )


def _commands(
    parser: argparse.ArgumentParser,
) -> list[tuple[str, tuple[str, argparse.ArgumentParser]]]:
    """Name, help and parser of each command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            return [(name, (helps.get(name, ""), one)) for name, one in action.choices.items()]
    return []


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """All options, long and short."""
    return [option for action in parser._actions for option in action.option_strings]


def _choices(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The choices of the positional arguments."""
    for action in parser._actions:
        if not action.option_strings and action.choices is not None:
            yield from map(str, action.choices)


def _bash_value(action: argparse.Action) -> str:
    """Bash code that completes an option's value: choices, a file, or nothing for a number."""
    if action.choices is not None:
        words = shlex.quote(" ".join(map(str, action.choices)))
        return f'mapfile -t COMPREPLY < <(compgen -W {words} -- "$cur"); return;;'
    if action.type is not None:
        return "COMPREPLY=(); return;;"
    return 'mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return;;'


def _zsh_words(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The arguments of zsh's ``_arguments`` for a parser's options and positional arguments."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        what = _files_or(action)
        for option in action.option_strings:
            value = "" if action.nargs == 0 else f":{action.dest}:{what}"
            yield shlex.quote(f"{option}[{_told(action)}]{value}")
        if not action.option_strings:
            many = action.nargs in ("*", "+", argparse.REMAINDER)
            yield shlex.quote(f"{'*' if many else ''}:{action.dest}:{what}")


def _files_or(action: argparse.Action) -> str:
    if action.choices is None:
        return "_files" if action.type is None else " "
    return f"({' '.join(map(str, action.choices))})"


def _told(action: argparse.Action) -> str:
    """The help text on one line, escaped for zsh."""
    text = (action.help or "").replace("%(default)s", str(action.default))
    return _escaped(re.sub(r"\s+", " ", text.replace("%(prog)s", "adapters")))


def _escaped(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text)
