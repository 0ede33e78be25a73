"""Tokens: each names its owner, until it is spent, revoked or expired."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from backstay.errors import BackstayError, InvalidPayload, NotFound, TokenExpired
from backstay.model.ids import TokenId
from backstay.model.token import Token
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase
from tests.contract.builders import ME, STRANGER


def digest(text: str) -> bytes:
    """The arguments of a new token."""
    return hashlib.sha256(text.encode()).digest()


def give(store: Store, text: str, *, owner: str = ME, seconds: float | None = None) -> Token:
    """A program's token."""
    return store.add_token(owner=owner, name=f"the token {text}", hash=digest(text), seconds=seconds)


def link(store: Store, text: str, *, seconds: float = 60.0) -> Token:
    """A link that signs a browser in."""
    return store.add_token(owner=ME, name="link", hash=digest(text), kind="link", seconds=seconds)


def spend(store: Store, text: str, browser: str) -> Token:
    """Sign a browser in with a link."""
    return store.redeem(digest(text), hash=digest(browser), name="browser", seconds=60.0)


class TokenContract(ContractBase):
    """Facts about tokens."""

    def test_a_token_names_its_owner_in_every_process(self, store: Store, other: Store) -> None:
        given = give(store, "secret")

        assert other.token(digest("secret")) == given
        assert (given.owner, given.name, given.kind, given.expires_at) == (ME, "the token secret", "api", None)

    def test_a_token_that_was_never_created_is_not_found(self, store: Store) -> None:
        give(store, "secret")

        with pytest.raises(NotFound):
            store.token(digest("guess"))

    def test_a_token_added_twice_is_one_token(self, store: Store, other: Store) -> None:
        first = give(store, "secret")

        assert give(other, "secret", owner=STRANGER) == first
        assert store.tokens(owner=STRANGER) == ()

    def test_a_revoked_token_holds_nowhere_and_adding_it_does_not_bring_it_back(
        self, store: Store, other: Store
    ) -> None:
        given = give(store, "secret")

        revoked = store.revoke_token(given.id, owner=ME)

        with pytest.raises(NotFound):
            other.token(digest("secret"))
        assert give(store, "secret").revoked_at == revoked.revoked_at is not None
        assert store.tokens(owner=ME) == ()

    def test_revoking_twice_changes_nothing(self, store: Store, clock: ManualClock) -> None:
        given = give(store, "secret")
        revoked = store.revoke_token(given.id, owner=ME)
        clock.advance(seconds=5)

        assert store.revoke_token(given.id, owner=ME) == revoked

    def test_a_token_of_another_owner_cannot_be_listed_or_revoked(self, store: Store) -> None:
        given = give(store, "secret")

        with pytest.raises(NotFound):
            store.revoke_token(given.id, owner=STRANGER)
        with pytest.raises(NotFound):
            store.revoke_token(TokenId("tok_nonsense"), owner=ME)
        assert store.tokens(owner=STRANGER) == ()
        assert store.tokens(owner=ME) == (given,)

    def test_the_tokens_of_all_owners_can_be_listed(self, store: Store) -> None:
        given = [give(store, "secret"), give(store, "hers", owner=STRANGER)]

        assert store.tokens(owner=None) == tuple(given)

    def test_an_expired_token_is_no_longer_valid(self, store: Store, clock: ManualClock) -> None:
        give(store, "secret", seconds=10)
        clock.advance(seconds=10)

        with pytest.raises(TokenExpired) as over:
            store.token(digest("secret"))
        assert over.value.expires_at == clock.now()
        assert store.tokens(owner=ME) == ()

    def test_an_expired_token_is_kept_for_a_month(self, store: Store, clock: ManualClock) -> None:
        give(store, "secret", seconds=10)
        clock.advance(seconds=29 * 86_400)
        give(store, "another")
        with pytest.raises(TokenExpired):
            store.token(digest("secret"))
        clock.advance(seconds=2 * 86_400)
        give(store, "a third")
        with pytest.raises(NotFound) as unknown:
            store.token(digest("secret"))
        assert not isinstance(unknown.value, TokenExpired)

    def test_an_expired_revoked_token_is_no_longer_known(self, store: Store, clock: ManualClock) -> None:
        store.revoke_token(give(store, "secret", seconds=10).id, owner=ME)
        clock.advance(seconds=10)

        with pytest.raises(NotFound) as gone:
            store.token(digest("secret"))
        assert not isinstance(gone.value, TokenExpired)

    def test_the_permissions_of_a_token_are_stored_with_it(self, store: Store, other: Store) -> None:
        assert give(store, "usual").access == "full"
        store.add_token(owner=ME, name="reader", hash=digest("secret"), access="read")

        assert other.token(digest("secret")).access == "read"
        assert {one.name: one.access for one in other.tokens(owner=ME)} == {"the token usual": "full", "reader": "read"}

    def test_a_token_expires_at_the_earlier_of_two_moments(self, store: Store, clock: ManualClock) -> None:
        def made(text: str, seconds: float | None) -> int | None:
            moment = clock.now() + 60_000
            given = store.add_token(owner=ME, name=text, hash=digest(text), seconds=seconds, expires_by=moment)
            return None if given.expires_at is None else given.expires_at - clock.now()

        assert (made("sooner", 10), made("later", 600), made("never", None)) == (10_000, 60_000, 60_000)

    def test_a_link_is_spent_once_and_signs_its_owner_in(self, store: Store) -> None:
        link(store, "link")

        browser = spend(store, "link", "browser")

        assert (browser.owner, browser.kind) == (ME, "browser")
        assert store.token(digest("browser")) == browser
        with pytest.raises(NotFound):
            spend(store, "link", "another")

    def test_a_link_signs_in_only_one_of_many_concurrent_callers(self, store: Store, other: Store) -> None:
        link(store, "link")

        def try_it(number: int) -> bool:
            try:
                spend(store if number % 2 else other, "link", f"browser {number}")
            except BackstayError:
                return False
            return True

        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(try_it, range(8))) == 1

    def test_an_expired_link_does_not_sign_in(self, store: Store, clock: ManualClock) -> None:
        link(store, "link", seconds=60)
        clock.advance(seconds=60)

        with pytest.raises(NotFound):
            spend(store, "link", "browser")

    def test_only_a_link_can_be_spent(self, store: Store) -> None:
        give(store, "secret")

        with pytest.raises(NotFound):
            spend(store, "secret", "browser")
        assert store.token(digest("secret")).revoked_at is None

    @pytest.mark.parametrize("hash", [b"", b"short", "x" * 32, None])
    def test_an_invalid_token_hash_is_rejected(self, store: Store, hash: bytes) -> None:
        with pytest.raises(InvalidPayload):
            store.add_token(owner=ME, name="bad", hash=hash)
        with pytest.raises(InvalidPayload):
            store.token(hash)

    def test_a_token_needs_a_name_and_a_kind(self, store: Store) -> None:
        with pytest.raises(InvalidPayload):
            store.add_token(owner=ME, name=" ", hash=digest("secret"))
        with pytest.raises(InvalidPayload):
            store.add_token(owner=ME, name="x", hash=digest("secret"), kind="magic")  # type: ignore[arg-type]  # refused
        with pytest.raises(InvalidPayload):
            store.add_token(owner=ME, name="x", hash=digest("secret"), access="all")  # type: ignore[arg-type]  # refused
        for seconds in (0, -1, float("nan"), float("inf")):
            with pytest.raises(InvalidPayload):
                give(store, "secret", seconds=seconds)
