"""The clock and the calculator."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.agents import ToolFailed
from backstay.agents.scripted.arithmetic import calculate
from backstay.agents.scripted.builtin_tools import calculator, clock_of
from backstay.testing import ManualClock

NUMBERS = st.integers(0, 99).map(str)
SUMS = st.recursive(
    NUMBERS,
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", " - "]), inner).map(lambda t: f"({''.join(t)})"),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2+3*4", "14"),
        ("(2+3)*4", "20"),
        ("-7 // 2", "-4"),
        ("7 % 4", "3"),
        ("1/4", "0.25"),
        ("2^10", "1024"),
        ("2**-1", "0.5"),
        ("6×7", "42"),
        ("8÷2", "4.0"),
        ("1e3 + .5", "1000.5"),
        ("1_000*2", "2000"),
        ("--3", "3"),
    ],
)
def test_arithmetic_is_worked_out(expression: str, value: str) -> None:
    assert calculator.function(expression) == value


@settings(deadline=None)
@given(SUMS)
def test_sums_and_products_match_python(expression: str) -> None:
    if len(expression) <= 200:
        assert calculate(expression) == eval(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "two plus two",
        "__import__('os').getcwd()",
        "(1).__class__",
        "[1][0]",
        "'a'*9",
        "True+1",
        "1 if 1 else 2",
        "1 < 2",
        "lambda: 1",
        "x := 1",
        "1j*1j",
        "1;2",
        "9**9**9**9",
        "2**4097",
        "(2**4000)*(2**4000)",
        "10.0**400",
        "1e999",
        "1/0",
        "1%0",
        "(-8)**0.5",
        "(" * 150,
        "-" * 199 + "x",
        "1+" * 200 + "1",
        "\0",
    ],
)
def test_anything_else_is_refused_with_a_reason_and_not_run(expression: str) -> None:
    with pytest.raises(ToolFailed, match=r"\w"):
        calculator.function(expression)


def test_the_clock_tool_uses_the_clock_it_was_given() -> None:
    clock = ManualClock(now=1_800_000_000_000)

    assert clock_of(clock).function() == "2027-01-15T08:00:00Z"


def test_both_may_run_twice() -> None:
    assert calculator.idempotent
    assert clock_of(ManualClock()).idempotent
