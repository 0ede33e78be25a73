"""How the page cuts what it hears into pictures, run by Node."""

from tests.web.node_tests import needs_node, passes


@needs_node
def test_an_answer_is_drawn_in_helpings_and_comes_to_the_same_story() -> None:
    passes("helping.test.mjs", 5)
