"""Tests expressions for names of GPUs: spelling doesn't matter, and the cost of hostile expressions is bounded."""

import re

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.gpunames import MOST_CHARACTERS, canonical, expression, matches

GTX = ("GeForce GTX 1070 Ti", "GeForce-GTX-1070-Ti", "geforce_gtx_1070_ti")


@pytest.mark.parametrize("name", GTX)
@pytest.mark.parametrize(
    "pattern",
    [
        "1070.Ti",
        "1070 Ti",
        "gtx-1070",
        "GTX_1070",
        r"GTX\-1070",
        r"gtx[ ]1070",
        "gtx[-]1070",
        "GTX[_x]1070",
        "^GEFORCE",
        "ti$",
        "(?:gtx-)10",
        "10[6-8]0",
    ],
)
def test_an_expression_matches_a_gpu_name_however_it_is_spelt(name: str, pattern: str) -> None:
    assert matches(pattern, (canonical(name),))


@pytest.mark.parametrize("pattern", ["1070Ti", "^1070", "GTX$", "[^-]1070", "10[8-9]0", "A100|H100"])
def test_an_expression_does_not_match_other_names(pattern: str) -> None:
    assert not any(matches(pattern, (canonical(name),)) for name in GTX)


@pytest.mark.parametrize("letters", ["[_-]", "[.-]", "[-]", "[a-]", r"[\s_-]", "[-_]", r"[_\-]", "[]-]", "[A-Z0-9-]", r"[\w-]"])
def test_a_bracket_expression_with_a_literal_dash_matches_a_dash(letters: str) -> None:
    assert matches(f"A100{letters}80GB", ("NVIDIA A100 80GB",))
    assert not matches(f"A100{letters}80GB", ("NVIDIA A100!80GB",))


def test_a_range_in_brackets_matches_no_dash() -> None:
    assert matches("A[0-9]+", ("NVIDIA A100",))
    assert not matches("A[0-9]00", ("NVIDIA A 00",))
    assert matches(r"A[[:digit:]-]00", ("NVIDIA A 00",))
    assert matches(r"(?P<a_b>A100)(?-i:x)?\d?", ("NVIDIA A100",))


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", r"missing \)"),
        ("[", r"missing \]"),
        ("a**", "bad repetition"),
        ("(?=a)", "invalid perl operator"),
        (r"(a)\1", "invalid escape"),
        ("((a{100}){100}){100}", "invalid repetition size"),
        ("(ab?c){900}b{900}", "too large"),
        ("x" * (MOST_CHARACTERS + 1), "more than the 128"),
        (r"\p{Nd}", "class of Unicode"),
        (r"[\PL]", "class of Unicode"),
        (r"\\\pL", "class of Unicode"),
        ("  ", "is empty"),
    ],
)
def test_malformed_and_too_large_expressions_are_refused_with_the_reason(pattern: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        expression(pattern)


def test_a_reason_that_quotes_the_expression_has_no_unprintable_characters() -> None:
    with pytest.raises(ValueError, match="is no regular expression of RE2") as refused:
        expression("[\x1b[2J\u202e")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("pattern", ["T4", "(", "(ab?c){900}b{900}", "x" * 127])
def test_an_expression_of_many_pods_is_compiled_once_even_if_it_is_refused(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    compiled = re2.compile

    def counted(text: str, options: object) -> object:
        tried.append(text)
        return compiled(text, options)

    monkeypatch.setattr(re2, "compile", counted)
    said = set()
    for _ in range(5):
        try:
            expression(f"{pattern}*?" if len(pattern) < 120 else pattern)
        except ValueError as error:
            said.add(str(error))
    assert len(said) <= 1
    assert len(tried) <= 2  # as written, and in canonical form


def test_costly_expressions_are_refused_before_they_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(re2, "compile", None)
    for pattern in (r"\PL" * 40, r"(?:\pL{1,40}){20}", "x" * (MOST_CHARACTERS + 1)):
        with pytest.raises(ValueError, match=r"Unicode|characters"):
            expression(pattern)


def test_an_escaped_backslash_begins_no_unicode_class() -> None:
    assert not matches(r"\\pL", ("A100",))


@given(st.text(alphabet="ab -_[]()^$|*+?.\\{},:<>P10", max_size=24))
def test_any_text_is_an_expression_or_is_refused_with_a_reason(pattern: str) -> None:
    try:
        expression(pattern)
    except ValueError as error:
        assert str(error)
    else:
        assert matches(pattern, ("a",)) in (True, False)


@given(st.text(alphabet="ab1 -_", min_size=1, max_size=8).filter(str.strip), st.text(alphabet="abAB1 -_", max_size=12))
def test_a_literal_matches_exactly_the_names_that_contain_it(pattern: str, name: str) -> None:
    def plain(text: str) -> str:
        return re.sub("[-_]", " ", text).lower()

    assert matches(pattern, (canonical(name),)) is (plain(pattern) in plain(name))
