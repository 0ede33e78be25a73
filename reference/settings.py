"""The reference of settings."""

from backstay.config import MEANINGS, Settings, setting_types, value_of, variable
from reference.markdown import code, sentence, table, whole

INTRODUCTION = """\
A flag has precedence over the environment, the environment over the file (`~/.config/backstay/config.toml`, or the one
named by `--config` or `BACKSTAY_CONFIG`), and the file over the default. `backstay config` shows every value and its
source. The environment variable of a setting is `BACKSTAY_` and its name in capitals, with `_` for each dot; the items
of a list are separated by commas. In the file, a setting with dots is in a table: `[gateways.telegram]`."""


def page() -> str:
    """The page."""
    rows = [
        [code(name), code(variable(name)), _spelled(value_of(Settings(), name)), MEANINGS[name]]
        for name in setting_types()
    ]
    return whole("Settings", INTRODUCTION, table(["setting", "environment", "default", "meaning"], rows))


def _spelled(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(code, value))
    return sentence(code(str(value).lower() if isinstance(value, bool) else str(value))) if value != "" else ""
