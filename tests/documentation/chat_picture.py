"""A chat as a page: what the people and the bot of a Telegram API on loopback wrote, in order."""

import html

from tests.gateways.fake_telegram import FakeTelegram

_PAGE = """<!doctype html><meta charset="utf-8"><title>Chat</title><style>
body {{ margin: 0; width: 26rem; background: #dfe7d8; font: 15px/1.4 system-ui, sans-serif; }}
header {{ padding: .7rem 1rem; background: #fff; border-bottom: 1px solid #c9d3c0; font-weight: 600; }}
header small {{ display: block; color: #6b7568; font-weight: 400; }}
main {{ display: flex; flex-direction: column; gap: .5rem; padding: 1rem; }}
p {{ margin: 0; max-width: 80%; padding: .5rem .75rem; border-radius: .9rem; background: #fff; white-space: pre-wrap;
    overflow-wrap: anywhere; align-self: flex-start; border-bottom-left-radius: .2rem; }}
p.person {{ align-self: flex-end; background: #d6f5c6; border-radius: .9rem; border-bottom-right-radius: .2rem; }}
hr {{ width: 100%; border: 0; text-align: center; }}
hr::after {{ content: attr(title); color: #5d6759; font-size: 13px; }}
</style><header>My agent<small>bot</small></header><main>{}</main>"""


def chat_page(telegram: FakeTelegram, *, chat: int = 42, breaks: dict[int, str] | None = None) -> str:
    """The HTML of a chat. `breaks` are remarks before the message with a number."""
    written: list[tuple[float, str]] = [
        (number, f"<p class=person>{html.escape(text)}</p>") for number, text in telegram.written(chat)
    ]
    written += [
        (one.number, f"<p>{one.text if one.mode == 'HTML' else html.escape(one.text)}</p>")
        for one in telegram.seen
        if one.chat == chat
    ]
    written += [(number - 0.5, f'<hr title="{html.escape(remark)}">') for number, remark in (breaks or {}).items()]
    return _PAGE.format("".join(text for _, text in sorted(written)))
