"""Signatures of thoughts: a provider accepts a thought, or a call that followed it, only with its own signature."""

import msgspec

from backstay.model.content import Custom

_KIND = "thought_signature"


class ThoughtSignature(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A signature.

    Attributes:
        model: The model that made it; no other model accepts it.
        signature: The signature, opaque. Empty if the thought has none, and so cannot be sent back.
        call: The id of the tool call that it belongs to; None for the thought or text before it.
        hidden: Whether it is a thought that the provider encrypted, and not a signature.
    """

    model: str
    signature: str
    call: str | None = None
    hidden: bool = False


def signature_of(model: str, signature: str, call: str | None = None, *, hidden: bool = False) -> Custom:
    """Return the part that stores a signature."""
    return Custom(
        _KIND, msgspec.to_builtins(ThoughtSignature(model=model, signature=signature, call=call, hidden=hidden))
    )


def read_signature(part: Custom, model: str) -> ThoughtSignature | None:
    """Return the signature in this part; None for another kind of part, or if another model made it."""
    if part.kind != _KIND:
        return None
    try:
        found = msgspec.convert(part.data, ThoughtSignature)
    except msgspec.ValidationError:
        return None  # a custom part of the same kind that is not ours
    return found if found.model == model else None
