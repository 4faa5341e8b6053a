"""Tests of the language check, and the check itself on all that people read."""

from pathlib import Path

import pytest

from tests import language
from tests.language import Text


def messages(path: str, source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Return what the check says of a file."""
    (tmp_path / path).write_text(source, encoding="utf-8")
    monkeypatch.setattr(language, "ROOT", tmp_path)
    return [finding.message for finding in language.findings([path])]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('def f():\n    """Whoever waits."""\n', ["opens with 'Whoever'", "'Whoever': say"]),
        ('def f():\n    """Whether the gang waits."""\n', ["opens with 'Whether'"]),
        ('def f():\n    """Return whether the gang waits."""\n', []),
        ('class A:\n    b: int\n    """How many gangs wait."""\n', ["opens with 'How'"]),
        ("x = 1  # nobody waits any more\n", ["'nobody': say", "'any more': say"]),
        ("# The first line says that\n# a seat is free.\nx = 1\n", ["'seat': say"]),
        ('def f():\n    """Return ``seats`` of `nobody`."""\n', []),
        ("def is_told(who):\n    pass\n", ["the name 'is_told' has 'told'", "the name 'who' has 'who'"]),
        ("def test_what_waits():\n    pass\n", ["the test's name 'test_what_waits' opens with 'what'"]),
        ('raise ValueError("nobody has told the scheduler")\n', ["'nobody': say", "'told': say"]),
        ('print(f"{a} has" f" told {b}")\n', ["'told': say"]),
        ("class Seating:\n    pass\n", ["the name 'Seating' has 'seating'"]),
        ("async def f(*, anew):\n    pass\n", ["the name 'anew' has 'anew'"]),
        (f'"""Return {"one " * 30}."""\n', ["31 words in a sentence"]),
        (f'"""Return {"one " * 29}."""\n', []),
    ],
)
def test_language_rule_applies_to_python(source: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = messages("module.py", source, monkeypatch, tmp_path)
    assert len(found) == len(expected)
    assert all(message.startswith(start) for message, start in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("A gang has a seat.\n", ["'seat': say"]),
        ("```sh\nallaboard --seat nobody\n```\n", []),
        (f"{'one ' * 31}.\n", ["31 words"]),
        (f"- {'one ' * 20}\n- {'one ' * 20}\n", []),
        (f"| {'one ' * 20} | {'one ' * 20} |\n|---|---|\n| {'one ' * 20} | {'one ' * 20} |\n", []),
        (f"[{'one ' * 20}](https://example.com/a-b-c) {'one ' * 10}\n", []),
    ],
)
def test_language_rule_applies_to_markdown(source: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = messages("page.md", source, monkeypatch, tmp_path)
    assert len(found) == len(expected)
    assert all(message.startswith(start) for message, start in zip(found, expected, strict=True))


def test_comments_of_manifests_and_makefiles_are_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert messages("a.yaml", "key: seat # nobody\n", monkeypatch, tmp_path) == ["'nobody': say no pod, no user"]
    assert messages("crd.yaml", "description: enforced by nobody\n", monkeypatch, tmp_path) == ["'nobody': say no pod, no user"]
    assert messages("main.go", "x := 1 // nobody\n", monkeypatch, tmp_path) == ["'nobody': say no pod, no user"]
    assert messages("a.tpl", "{{- /* nobody */ -}}\n", monkeypatch, tmp_path) == ["'nobody': say no pod, no user"]
    assert messages("NOTES.txt", "Tell nobody.\n", monkeypatch, tmp_path) == [
        "'nobody': say no pod, no user",
        "'Tell': say report, say, inform",
    ]
    assert messages("Makefile", "run: ## Tell the user\n", monkeypatch, tmp_path) == ["'Tell': say report, say, inform"]


def test_finding_of_the_language_check_names_the_line_of_the_word() -> None:
    (finding,) = language._in_text(Text("a.py", 3, "one\ntwo\nnobody"))
    assert str(finding) == "a.py:5: 'nobody': say no pod, no user"
