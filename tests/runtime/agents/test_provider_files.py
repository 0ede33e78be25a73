"""Files reach the models of every provider, in this turn and the next; a refused one stops nothing."""

import base64

import pytest

import backstay
from backstay import Text
from backstay.model.turn import Completed, Failed
from tests.agents.provider.dialects import DIALECTS, Dialect
from tests.agents.provider.fake_provider import FakeProvider
from tests.databases import Place

PHOTO = b"\x89PNG pixels"
SENT = base64.b64encode(PHOTO)

each = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


@each
async def test_every_provider_is_sent_images_and_the_same_prefix(path: Place, dialect: Dialect) -> None:
    plays = [dialect.answers("A cat."), dialect.answers("Yes."), dialect.answers("No.")]
    async with FakeProvider(*plays) as provider:
        agent = dialect.agent(provider, accepts=("image/*",))
        async with backstay.open(path, agent=agent) as app:
            session = await app.session()
            photo = await session.upload(PHOTO, name="cat.png")
            assert await (await session.send([Text("look"), photo])).outcome() == Completed()
            assert await (await session.send("sure?")).outcome() == Completed()
            assert await (await session.send([Text("and this?"), photo])).outcome() == Completed()
        first, second, third = provider.requests
        for request, count in ((first, 1), (second, 1), (third, 2)):
            dialect.check(request)
            assert request.raw.count(SENT) == count
        assert second.raw.startswith(first.raw.removesuffix(dialect.closing))
        assert third.raw.startswith(second.raw.removesuffix(dialect.closing))


@each
async def test_a_refused_file_does_not_stop_the_session(path: Place, dialect: Dialect) -> None:
    async with FakeProvider(dialect.answers("Hello.")) as provider:
        agent = dialect.agent(provider, accepts=("image/gif",))
        async with backstay.open(path, agent=agent) as app:
            session = await app.session()
            photo = await session.upload(PHOTO, name="cat.png")
            refused = await (await session.send([Text("look"), photo])).outcome()
            assert isinstance(refused, Failed)
            assert "cannot read 'cat.png'" in refused.reason
            assert provider.requests == []
            assert await (await session.send("hello")).outcome() == Completed()
            assert b"cat.png" not in provider.requests[0].raw
