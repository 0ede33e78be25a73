"""Settings: what an operator may choose."""

import msgspec

from backstay.config import MEANINGS, PREFIX, Settings
from reference.markdown import code, sentence, table, whole

INTRODUCTION = """\
A flag beats the environment, which beats the file (`~/.config/backstay/config.toml`, or the one named by `--config` or
`BACKSTAY_CONFIG`), which beats the default. `backstay config` shows what is in force and where it comes from. In the
environment a setting is its name in capitals behind `BACKSTAY_`, and a list is written with commas."""


def page() -> str:
    """The page."""
    rows = [
        [code(field.name), code(PREFIX + field.name.upper()), _spelled(field.default), MEANINGS[field.name]]
        for field in msgspec.structs.fields(Settings)
    ]
    return whole("Settings", INTRODUCTION, table(["setting", "environment", "default", "meaning"], rows))


def _spelled(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(code, value))
    return sentence(code(str(value).lower() if isinstance(value, bool) else str(value))) if value != "" else ""
