"""Tests that help and shell completion import only the options of the commands, so that they answer at once."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from allaboard.cli import commands
from allaboard.cli.main import cli
from allaboard.cli.stories import STORIES
from allaboard.model.gang import Objective
from allaboard.settings.options import Settings

pytestmark = pytest.mark.processes

LIGHT = {
    f"allaboard{name}"
    for name in (
        *("", ".cli", ".cli.commands", ".cli.inputs", ".cli.main"),
        *(".model", ".model.errors", ".model.quantities", ".model.variables"),
    )
}
PROGRAM = """if True:
    import json, os, sys
    before = set(sys.modules)
    from allaboard.cli.main import main
    sys.argv = ["allaboard", *json.loads(sys.argv[1])]
    try:
        main()
    except SystemExit:
        pass
    print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)
"""
COMMANDS = [[], *([name] for name in cli.commands), ["config", "check"]]


def imported(*arguments: str, **environment: str) -> tuple[str, set[str]]:
    """Return what ``allaboard`` prints in a process of its own, and the modules that it imports besides Python's own and click's."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stderr.splitlines()[-1]))
    return done.stdout, {name for name in modules if name.partition(".")[0] not in {*sys.stdlib_module_names, "click"}}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_imports_no_module_that_only_the_command_needs(command: list[str]) -> None:
    said, modules = imported(*command, "--help")
    assert said.startswith(f"Usage: {' '.join(['allaboard', *command])} ")
    assert modules <= LIGHT


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["pl"], "plain,plan"),
        (["plan", "--gang-scheduler"], "plain,--gang-scheduler-name"),
        (["demo", "--story", "tw"], "plain,two-jobs\nplain,twenty"),
    ],
)
def test_completion_imports_no_module_that_only_a_command_needs(words: list[str], completed: str) -> None:
    line = ["allaboard", *words]
    said, modules = imported(COMP_WORDS=" ".join(line), COMP_CWORD=str(len(words)), _ALLABOARD_COMPLETE="bash_complete")
    assert said == f"{completed}\n"
    assert modules <= LIGHT


def test_options_offer_exactly_the_known_objectives_and_stories() -> None:
    assert list(commands.OBJECTIVES) == [objective.value for objective in Objective]
    assert list(commands.STORIES) == [story.name for story in STORIES]


@pytest.mark.parametrize("option", [each for each in commands.run.params if each.name in Settings.model_fields], ids=lambda each: each.name)
def test_help_of_run_states_the_defaults_of_the_settings(option: commands.click.Option) -> None:
    default = Settings.model_fields[str(option.name)].default
    shown = {"": "", False: "no", (): "all"}.get(default, ", ".join(default) if isinstance(default, tuple) else default)
    if option.name not in ("kubeconfig", "lease_namespace"):  # empty, since the default depends on where the operator runs
        assert str(option.help).endswith(f" [{shown}].")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_a_shell(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell], prog_name="allaboard", catch_exceptions=False)
    assert f"_ALLABOARD_COMPLETE={shell}_complete" in result.stdout
