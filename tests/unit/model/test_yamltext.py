"""Malformed and costly YAML is refused before values are built from it."""

import pytest

from allaboard.model.yamltext import TextError, yaml_documents, yaml_value


def merges(levels: int, width: int) -> str:
    """Return YAML with ``levels`` mappings, each of which merges the mapping before it ``width`` times."""
    lines = [f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * width)}]}}" for level in range(1, levels)]
    return "\n".join(["a0: &a0 {k: 1}", *lines])


def test_merges_that_yield_millions_of_values_are_refused_with_the_line() -> None:
    text = merges(levels=30, width=9)
    assert len(text) < 2048
    with pytest.raises(TextError, match=r"^line 7: merges more than 100000 values by <<$"):
        yaml_value(text)


def test_many_mappings_that_merge_a_large_one_are_refused() -> None:
    pairs = ", ".join(f"k{number}: 1" for number in range(1000))
    with pytest.raises(TextError, match="merges more than 100000 values"):
        yaml_value(f"- &a {{{pairs}}}\n" + "- {<<: *a}\n" * 101)


def test_ordinary_merges_are_accepted() -> None:
    assert yaml_value(merges(levels=4, width=3)) == {f"a{level}": {"k": 1} for level in range(4)}
    assert yaml_value("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n") == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}
    assert yaml_value("a: &a {<<: *a, b: 1}\n") == {"a": {"b": 1}}


@pytest.mark.parametrize("text", ["a: {}", "? {}\n: 1", "a: [1, {{b: {}}}]"])
def test_a_number_that_python_can_not_print_is_refused_with_the_line(text: str) -> None:
    with pytest.raises(TextError, match=r"^line 1: holds a number of more than 256 digits$"):
        yaml_documents(text.format(f"0x{'f' * 5000}"))
    assert yaml_documents(text.format("0xff"))


@pytest.mark.parametrize("number", ["9" * 256, f"0x{'f' * 254}", f"-{'9' * 255}"])
def test_the_longest_accepted_number_can_be_printed_and_converted_to_a_float(number: str) -> None:
    value = yaml_value(number)
    assert isinstance(value, int)
    assert (len(str(value)) > 250, abs(float(value)) > 1e250) == (True, True)
    with pytest.raises(TextError, match="more than 256 digits"):
        yaml_value(f"{number}0")
