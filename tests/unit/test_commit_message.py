"""Tests of the hook that checks commit messages."""

import subprocess
import sys
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[2] / ".ci" / "commit-msg"


def check(message: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "message").write_text(message, encoding="utf-8")
    return subprocess.run([sys.executable, HOOK, tmp_path / "message"], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "message",
    [
        "Wake gangs when exactly what they lack is freed\n",
        "Bring the queue up to date\n\nThe why, as long as it needs to be; with a semicolon.\n",
        "Feed the decoder\n# A comment of the editor\n",
        "Embed the schema\n",
        "Ping the server\r\n",
        "\n# A comment first\nWake gangs\n",
        "Wake gangs\n# ------------------------ >8 ------------------------\n# Below is the diff\ndiff --git a/a b/a\n",
        "Merge branch 'main'; with whatever git says.\n",
    ],
)
def test_good_commit_message_passes(message: str, tmp_path: Path) -> None:
    assert (check(message, tmp_path).returncode, check(message, tmp_path).stderr) == (0, "")


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("", "the message is empty"),
        (f"Say {'x' * 69}\n", "the subject has 73 characters, at most 72 are allowed"),
        ("wake gangs\n", "the subject begins with a capital letter"),
        ("Woke up, fixed\nat once\n", "the second line is empty"),
        ("Added a test\n", "not with 'Added'"),
        ("Waking gangs\n", "not with 'Waking'"),
        ("The queue is sorted\n", "not with 'The'"),
        ("Wake gangs; count losses\n", "split the commit where ';' joins two"),
        ("Wake gangs.\n", "the subject ends without a period"),
    ],
)
def test_bad_commit_message_is_refused_with_the_problem(message: str, problem: str, tmp_path: Path) -> None:
    done = check(message, tmp_path)
    assert done.returncode == 1
    assert problem in done.stderr
