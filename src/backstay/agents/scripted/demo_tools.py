"""Demonstration tools: a payment that must not run twice, and a question that needs a person's approval."""

from collections.abc import Callable
from pathlib import Path

from backstay.agents.tools import Tool, tool

Ledger = list[str] | Path


def _nothing() -> None:
    """Do nothing."""


def payment_into(ledger: Ledger, *, idempotent: bool = False, then: Callable[[], None] = _nothing) -> Tool:
    """Return the tool `pay`, which appends its key and amount to a list or file, so that payments can be counted.

    `then` runs inside the tool, after the payment and before its result is stored.
    """

    def pay(amount: int, key: str) -> str:
        _append(ledger, f"{key} {amount}")
        then()
        return f"paid {amount}"

    return Tool(name="pay", function=pay, description="Pay an amount of play money.", idempotent=idempotent)


@tool(approval=True)
def confirm(question: str) -> str:
    """Ask a person to agree. Runs only after they have agreed."""
    return f"a person agreed: {question}"


def _append(ledger: Ledger, line: str) -> None:
    if isinstance(ledger, list):
        ledger.append(line)
        return
    with ledger.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
