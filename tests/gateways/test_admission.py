"""Who may talk to a gateway: nobody who was not let in. Strangers learn nothing, and cost nothing."""

import asyncio
import logging
import re

import pytest

from backstay import App
from backstay.config import Settings, choose
from backstay.errors import ConfigError
from backstay.gateways.gateway_options import GatewayOptions
from backstay.store.commands import gateway_commands
from backstay.store.commands.gateways import pairing_commands
from tests.databases import Place
from tests.gateways.fake_telegram import fake_telegram
from tests.gateways.running_gateway import running, seen

pytestmark = pytest.mark.engines("sqlite")

# As for a removed person: what was read lasts for a moment only.
PAIRING = GatewayOptions(pairing=True, quiet=0.05, retry=0.01, takeover=0.05, recheck=0.001)
USUAL = GatewayOptions(pairing=True, quiet=0.05, retry=0.01, takeover=0.05)
LISTED = GatewayOptions(pairing=True, allow=frozenset({"42"}), quiet=0.05, retry=0.01, takeover=0.05)


async def test_a_person_is_let_in_by_the_code_that_the_bot_gave(place: Place) -> None:
    with fake_telegram() as telegram:
        async with running(place, telegram, USUAL) as app:
            telegram.write("let me in")
            (offer,) = await seen(telegram, 1)
            assert (await app.sessions()).sessions == (), "the message of a stranger is not stored"
            await confirm(app, code_in(offer))

            telegram.write("hello")
            assert await seen(telegram, 2) == [offer, "you said: hello"]
            telegram.write("and me", chat=66, sender=66)
            telegram.write("a group", chat=-100, sender=66, kind="group")
            telegram.write("bye")
            assert (await seen(telegram, 3))[2] == "you said: bye"
            assert telegram.texts(66) == [], "one person was let in: nobody else gets a code"


async def test_a_removed_person_is_answered_no_longer(place: Place) -> None:
    with fake_telegram() as telegram:
        async with running(place, telegram, PAIRING) as app:
            telegram.write("let me in")
            (offer,) = await seen(telegram, 1)
            person = await confirm(app, code_in(offer))
            await app.run(pairing_commands.remove_person("telegram/7", person, owner="local"))

            telegram.write("still here?")
            await asyncio.to_thread(telegram.wait_for, lambda: telegram.confirmed == 2)
            assert (await app.sessions()).sessions == ()


@pytest.mark.parametrize("allow", [{"43"}, {"-100"}, {"43", "-100"}])
async def test_no_code_is_given_where_an_allow_list_exists(place: Place, allow: set[str]) -> None:
    options = GatewayOptions(pairing=True, allow=frozenset(allow), quiet=0.05, retry=0.01, recheck=0.001)
    with fake_telegram() as telegram:
        async with running(place, telegram, options) as app:
            telegram.write("/start", chat=66, sender=66)
            telegram.write("let me in", chat=66, sender=66)
            await asyncio.to_thread(telegram.wait_for, lambda: telegram.confirmed == 2)

            assert telegram.seen == []
            assert await app.run(pairing_commands.gateway_people("telegram/7", owner="local")) == ()


async def test_a_code_opens_nothing_until_it_is_confirmed(place: Place) -> None:
    with fake_telegram() as telegram:
        async with running(place, telegram, PAIRING) as app:
            telegram.write("let me in")
            (offer,) = await seen(telegram, 1)
            telegram.write(code_in(offer))
            telegram.write(f"/pair {code_in(offer)}")
            telegram.write("@fake_bot hello", chat=-100, kind="supergroup")
            await asyncio.to_thread(telegram.wait_for, lambda: telegram.confirmed == 4)

            assert telegram.texts() == [offer]
            assert telegram.texts(-100) == []
            assert (await app.sessions()).sessions == ()


async def test_many_strangers_get_few_codes(place: Place) -> None:
    with fake_telegram() as telegram:
        async with running(place, telegram, PAIRING) as app:
            for stranger in range(100, 300):
                telegram.write("let me in", chat=stranger, sender=stranger)
            await asyncio.to_thread(telegram.wait_for, lambda: telegram.confirmed == 200)

            assert len(telegram.seen) <= 5
            assert len(await app.run(pairing_commands.gateway_people("telegram/7", owner="local"))) <= 5


async def test_strangers_cost_nothing(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "backstay.gateways")
    with fake_telegram() as telegram:
        async with running(place, telegram, LISTED) as app:
            for number in range(500):
                telegram.write(f"spam {number}", chat=66, sender=66)
                telegram.write(f"@fake_bot spam {number}", chat=-100, sender=66, kind="supergroup")
            await asyncio.to_thread(telegram.wait_for, lambda: telegram.confirmed >= 900)

            (gateway,) = await app.run(gateway_commands.gateways(owner="local"))
            assert (gateway.cursor, gateway.received_at) == ("", None), "nothing was written for them"
            assert telegram.seen == []
            assert (await app.sessions()).sessions == ()
            assert [record.getMessage() for record in caplog.records] == ["telegram/7: polling"]
            telegram.write("hello")
            assert await seen(telegram, 1) == ["you said: hello"]


@pytest.mark.parametrize(
    "written", [["all"], ["*", "42"], ["**"], ["@ann"], ["ann"], ["0"], ["-"], ["42 "], ["4 2"], [""], ["None"]]
)
@pytest.mark.parametrize("name", ["gateways.telegram.allow_users", "gateways.telegram.allow_chats"])
def test_only_the_literal_star_allows_everybody(name: str, written: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"gateways\.telegram"):
        choose({name: tuple(written)}, {"HOME": "/nowhere", "XDG_DATA_HOME": "/nowhere"})


def test_an_empty_allow_list_allows_nobody() -> None:
    settings: Settings = choose(
        {}, {"XDG_DATA_HOME": "/nowhere", "BACKSTAY_GATEWAYS_TELEGRAM_ALLOW_USERS": " , "}
    ).settings
    assert settings.gateways.telegram.allow_users == ()
    assert not GatewayOptions().allows("42", "42")
    assert GatewayOptions(allow=frozenset({"*"})).allows("42", "42")


def code_in(offer: str) -> str:
    """The code that the bot gave."""
    found = re.search(r"[0-9A-Z]{4}-[0-9A-Z]{4}", offer)
    assert found is not None, offer
    return found[0]


async def confirm(app: App, code: str) -> str:
    """The owner types the code; returns the person."""
    return (await app.run(pairing_commands.confirm_code("telegram/7", code, owner="local"))).person
