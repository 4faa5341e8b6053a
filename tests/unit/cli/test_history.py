"""Tests that ``allaboard history`` shows the decisions about the gangs that the user asks for."""

import pytest
from click.testing import CliRunner, Result

from allaboard.cli.main import cli
from allaboard.sight.values import Decision, Decisions
from tests.unit.cli.apis import an_api

KNOWN = [("a", "bert", "Wait", "Insufficient", "4 GPUs are free"), ("a", "gpt", "Bind", "", ""), ("b", "bert", "Preempt", "NoCapacity", "")]


def history(*words: str, hidden: int = 0, now: float = 0.0) -> Result:
    decisions = [
        Decision(namespace=namespace, name=name, first_at=0.0, last_at=0.0, times=2, decision=decision, reason=reason, message=message)
        for namespace, name, decision, reason, message in KNOWN
    ]
    answer = Decisions(at=now, decisions=decisions, hidden=hidden).model_dump_json(by_alias=True)
    with an_api({"decisions": answer}) as url:
        return CliRunner().invoke(cli, ["history", "--api", url, *words], catch_exceptions=False)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-n", "a"], ["bert Wait Insufficient 2", "gpt Bind <none> 2"]),
        (["-n", "a", "gpt"], ["gpt Bind <none> 2"]),
        (["-A", "bert"], ["bert Wait Insufficient 2", "bert Preempt NoCapacity 2"]),
    ],
)
def test_decisions_about_the_named_gangs_are_shown(words: list[str], expected: list[str]) -> None:
    rows = [line.split() for line in history(*words).stdout.splitlines()[1:] if not line.startswith("  ")]
    assert [" ".join(row[-4:]) for row in rows] == expected


def test_the_message_stands_below_a_decision() -> None:
    assert history("-n", "a", "bert").stdout.splitlines()[2] == "  4 GPUs are free"


def test_no_decisions_are_said_to_be_unknown() -> None:
    result = history("none", hidden=3)
    assert "no decisions are known" in result.stderr
    assert "3 decisions of namespaces that you may not read are left out" in result.stderr


def test_each_decision_is_one_line_with_all_columns_where_lines_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allaboard.cli.tables.line_width", lambda: 80)
    monkeypatch.setitem(globals(), "KNOWN", [("team-of-many-words", "name-of-a-gang-" * 4, "Wait", "Insufficient", "4 GPUs are free")])
    header, row, message = history("-A", now=1e9).stdout.splitlines()
    assert header.split() == ["TIME", "NAMESPACE", "GANG", "DECISION", "REASON", "TIMES"]
    assert "…" in row
    assert row.split()[-3:] == ["Wait", "Insufficient", "2"]
    assert message == "  4 GPUs are free"
    assert all(len(line) <= 80 for line in (header, row))
