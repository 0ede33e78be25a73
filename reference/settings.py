"""The reference of settings."""

import msgspec

from backstay.config import MEANINGS, PREFIX, Settings
from reference.markdown import code, sentence, table, whole

INTRODUCTION = """\
A flag has precedence over the environment, the environment over the file (`~/.config/backstay/config.toml`, or the one
named by `--config` or `BACKSTAY_CONFIG`), and the file over the default. `backstay config` shows every value and its
source. The environment variable of a setting is `BACKSTAY_` and its name in capitals; the items of a list are separated
by commas."""


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
