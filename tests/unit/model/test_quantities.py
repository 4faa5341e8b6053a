"""Quantities are read, rounded and shown as apimachinery's ``resource.Quantity`` does."""

from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.errors import MalformedError
from allaboard.model.quantities import LARGEST_AMOUNT, format_amount, parse_quantity, resource_amount

# What apimachinery resource/quantity.go accepts; the value is exact.
WELL_FORMED = {
    "0": Fraction(0),
    "1": Fraction(1),
    "+1": Fraction(1),
    "-0": Fraction(0),
    ".5": Fraction(1, 2),
    "1.": Fraction(1),
    "0.1": Fraction(1, 10),
    "100m": Fraction(1, 10),
    "1500m": Fraction(3, 2),
    "1n": Fraction(1, 10**9),
    "1u": Fraction(1, 10**6),
    "1k": Fraction(1000),
    "1M": Fraction(10**6),
    "1G": Fraction(10**9),
    "1T": Fraction(10**12),
    "1P": Fraction(10**15),
    "1E": Fraction(10**18),
    "1E3": Fraction(1000),
    "1e3": Fraction(1000),
    "1e+3": Fraction(1000),
    "1e-3": Fraction(1, 1000),
    "1.5e1": Fraction(15),
    "1Ki": Fraction(1024),
    "1.5Gi": Fraction(3 * 2**29),
    "1Mi": Fraction(2**20),
    "1Ti": Fraction(2**40),
    "1Pi": Fraction(2**50),
    "1Ei": Fraction(2**60),
}


@pytest.mark.parametrize(("text", "value"), WELL_FORMED.items())
def test_a_well_formed_quantity_has_its_exact_value(text: str, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (0, Fraction(0)),
        (4, Fraction(4)),
        (0.1, Fraction(1, 10)),
        (2.5, Fraction(5, 2)),
        (1e22, Fraction(10**22)),
        (1e-7, Fraction(1, 10**7)),
    ],
)
def test_bare_numbers_are_quantities(value: float, exact: Fraction) -> None:
    assert parse_quantity(value) == exact


MALFORMED = ["", " ", ".", "-", "+", "m", "Ki", "e3", "1e", "1e+", "3.01e-", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i"]
MALFORMED += ["1K", "1ki", "1KiB", "1 Gi", "1,5", "0x10", "1_000", "NaN", "inf", "٣", "1\n2", "1" * 65, "1e100"]


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_quantity_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(MalformedError) as caught:
        parse_quantity(text, "spec.containers[0].resources.requests[cpu]")
    assert caught.value.field == "spec.containers[0].resources.requests[cpu]"
    assert "is not a quantity such as" in caught.value.problem


@pytest.mark.parametrize("value", [None, True, False, [], {}, b"1", float("nan"), float("inf"), "9" * 5000])
def test_a_value_that_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(MalformedError, match="is not a quantity"):
        parse_quantity(value)


def test_a_number_that_is_too_long_to_be_shown_is_refused_with_a_message_without_the_number() -> None:
    with pytest.raises(MalformedError, match="a value of type int is not a quantity"):
        parse_quantity(10**5000)


@pytest.mark.parametrize("value", ["-1", "-100m", -1, -0.5, "-1e3"])
def test_a_negative_quantity_is_refused(value: object) -> None:
    with pytest.raises(MalformedError, match="is negative"):
        parse_quantity(value)


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "0.1", 100),
        ("cpu", "100m", 100),
        ("cpu", "1e3", 1_000_000),
        ("cpu", "100u", 1),
        ("cpu", "1500u", 2),
        ("cpu", 2, 2000),
        ("memory", "1Ki", 1024),
        ("memory", "100m", 1),
        ("memory", "1.5", 2),
        ("memory", "128974848", 128_974_848),
        ("memory", "129e6", 129_000_000),
        ("memory", "123Mi", 128_974_848),
        ("nvidia.com/gpu", 4, 4),
        ("nvidia.com/gpu", "4", 4),
        ("pods", "110", 110),
    ],
)
def test_cpu_counts_in_milli_cores_and_other_resources_in_pieces_rounded_up(resource: str, text: object, amount: int) -> None:
    assert resource_amount(resource, text) == amount


@pytest.mark.parametrize("text", ["1E", "9" * 60, "1e99", "16Ei"])
def test_amounts_beyond_any_node_are_capped_so_that_sums_stay_within_64_bits(text: str) -> None:
    assert resource_amount("memory", text) == LARGEST_AMOUNT
    assert LARGEST_AMOUNT * 8000 < 2**63


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 2500, "2500m"),
        ("cpu", 2000, "2"),
        ("cpu", 0, "0"),
        ("memory", 16 * 2**30, "16Gi"),
        ("memory", 500 * 2**20, "500Mi"),
        ("memory", 2**20 + 2**10, "1025Ki"),
        ("memory", 1000, "1000"),
        ("memory", 0, "0"),
        ("hugepages-2Mi", 2**22, "4Mi"),
        ("nvidia.com/gpu", 1024, "1024"),
    ],
)
def test_amounts_are_shown_in_the_largest_unit_that_is_exact(resource: str, amount: int, text: str) -> None:
    assert format_amount(resource, amount) == text


@given(st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-1Gi", "nvidia.com/gpu"]), st.integers(0, LARGEST_AMOUNT))
def test_a_shown_amount_reads_back_as_itself(resource: str, amount: int) -> None:
    assert resource_amount(resource, format_amount(resource, amount)) == amount


@given(st.decimals(min_value=0, max_value=10**12, places=6), st.sampled_from(["", "m", "k", "M", "Ki", "Mi"]))
def test_an_amount_is_rounded_up_by_less_than_a_whole_unit(number: object, suffix: str) -> None:
    exact = parse_quantity(f"{number}{suffix}")
    amount = resource_amount("memory", f"{number}{suffix}")
    assert amount == LARGEST_AMOUNT or exact <= amount < exact + 1


@given(st.text() | st.integers() | st.floats() | st.none() | st.booleans() | st.binary() | st.lists(st.integers()))
def test_nothing_but_malformed_error_is_raised_for_any_value(value: object) -> None:
    with suppress(MalformedError):
        assert parse_quantity(value) >= 0
