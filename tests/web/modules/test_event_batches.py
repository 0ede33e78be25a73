"""The batches of events that the web UI draws, run by Node."""

from tests.web.modules.node_tests import needs_node, passes


@needs_node
def test_an_answer_drawn_in_batches_gives_the_same_conversation() -> None:
    passes("event_batches.test.mjs", 5)
