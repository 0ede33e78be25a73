"""A safe calculator: evaluates arithmetic that a person or a model wrote, and nothing else."""

import ast
import math
import operator
from collections.abc import Callable

LONGEST = 200
_MOST_BITS = 4096

Number = int | float

_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_SIGNS: dict[type[ast.unaryop], Callable[[Number], Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "^": "**"})


def calculate(expression: str) -> Number:
    """Evaluate numbers joined by + - * / // % ** and parentheses.

    Raises:
        ValueError: The text is not arithmetic, or the result is too large or not a real number.
    """
    if len(expression) > LONGEST:
        raise ValueError(f"the expression is longer than {LONGEST} characters")
    try:
        tree = ast.parse(expression.translate(_SPELLINGS).strip(), mode="eval")
        return _value(tree.body)
    except ZeroDivisionError as error:
        raise ValueError("cannot divide by zero") from error
    except OverflowError as error:
        raise ValueError("the result is too large") from error
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{expression!r} is not arithmetic") from error


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _bounded(number)
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_value(operand))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _bounded(_OPERATORS[type(sign)](_value(left), _value(right)))
    raise ValueError(f"{ast.unparse(node)!r} is not arithmetic")


def _power(base: Number, exponent: Number) -> Number:
    """Raise a number to a power; reject a result that is too large before it is computed."""
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > _MOST_BITS:
        raise OverflowError
    result: object = base**exponent
    if not isinstance(result, int | float):
        raise ValueError("the result is not a real number")  # noqa: TRY004  # a wrong value, not a wrong type
    return _bounded(result)


def _bounded(number: Number) -> Number:
    if isinstance(number, int) and number.bit_length() <= _MOST_BITS:
        return number
    if isinstance(number, float) and math.isfinite(number):
        return number
    raise OverflowError
