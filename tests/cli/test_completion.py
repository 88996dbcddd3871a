from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest

from adapters.cli import main
from adapters.cli.main import parser_of

COMMANDS = next(each.choices for each in parser_of()._actions if each.dest == "command")


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]):
    """What the command prints for a shell."""

    def printed(shell: str) -> str:
        assert main(["completion", shell]) == 0
        return capsys.readouterr().out

    return printed


def run(shell: str, program: str, cwd=None) -> list[str]:
    finished = subprocess.run(
        [shell, "-c", program], capture_output=True, text=True, cwd=cwd, timeout=30
    )
    assert (finished.returncode, finished.stderr) == (0, ""), finished.stderr
    return finished.stdout.splitlines()


@pytest.fixture
def bash(script, tmp_path):
    """What bash offers behind words, of which the last is being typed."""
    (tmp_path / "a photo.jpg").touch()
    text = script("bash")

    def offered(*words: str) -> list[str]:
        typed = shlex.join(["adapters", *words])
        call = f"COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _adapters"
        return run("bash", f'{text}\n{call}\nprintf "%s\\n" "${{COMPREPLY[@]}}"', tmp_path)

    return offered


def test_bash_completes_every_command(bash):
    assert set(COMMANDS) < set(bash(""))
    assert bash("verif") == ["verify"]


@pytest.mark.parametrize("command", COMMANDS)
def test_bash_completes_every_option_of_a_command(bash, command):
    known = {option for each in COMMANDS[command]._actions for option in each.option_strings}
    assert set(bash(command, "-")) == known


def test_bash_completes_choices_and_files_and_no_numbers(bash):
    assert bash("pack", "--format", "") == ["recordio", "tfrecord"]
    assert bash("pack", "x", "--on-error", "s") == ["skip"]
    assert bash("completion", "z") == ["zsh"]
    assert bash("verify", "a") == ["a photo.jpg"]
    assert bash("pack", "--quality", "") == [""]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh isn't installed")
def test_zsh_is_told_the_same(script):
    stubs = "compdef() { }\n_arguments() { print -l -- $@ }\n_describe() { print -l -- ${(P)2} }\n"
    text = stubs + script("zsh")
    told = run("zsh", text + "words=(adapters ''); CURRENT=2; _adapters")
    assert {line.partition(":")[0] for line in told} >= set(COMMANDS)
    told = run("zsh", text + "words=(adapters pack --f); CURRENT=3; _adapters")
    assert "--format[else by OUT's ending]:format:(recordio tfrecord)" in told
    assert ":source:_files" in told
