"""Reasons: why somebody else's code failed, in words that can be stored and read."""

from backstay.errors import BackstayError

_LONGEST = 2_000


def reason_of(error: BaseException) -> str:
    """What an error says of itself, whatever was raised; its kind is named if it is not one of ours."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # an exception that cannot even say what it is
        text = "it could not say why"
    text = text.encode(errors="replace").decode().replace("\0", "")[:_LONGEST]
    if isinstance(error, BackstayError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
