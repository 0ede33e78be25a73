"""The browser of the tests: a call that is never answered ends with the time of the test."""

import httpx2
import pytest
from playwright.sync_api import expect

from tests.plugins.time_limit import OutOfTime, limit
from tests.server.api_calls import new_session
from tests.web.browser_tab import Person

pytestmark = pytest.mark.engines("sqlite")


def test_a_call_that_is_never_answered_is_ended_and_the_browser_is_still_there(
    person: Person, client: httpx2.Client
) -> None:
    tab = person.tab(new_session(client))
    with pytest.raises(OutOfTime), limit(0.1):
        tab.page.evaluate("new Promise(() => {})")
    tab.ask("hello")
    expect(tab.answers).to_have_count(1)
