"""Markdown becomes Telegram's HTML: well-formed whatever the text is, and nothing of the text is lost."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.gateways.outbox.text_limits import units
from backstay.gateways.telegram.telegram_markup import telegram_html

ALLOWED = {"b", "i", "s", "code", "pre", "a", "blockquote"}
# The characters that are markup, not text.
MARKUP = set("*_~`#>-+[]() \t\n•\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029\xa0")

markdown = st.lists(
    st.one_of(
        st.sampled_from(
            ["**", "__", "~~", "*", "_", "`", "```", "```python", "\n", "> ", "# ", "- ", "[a](https://x.y)"]
        ),
        st.text(max_size=12),
        st.sampled_from(["<b>", "</b>", "&amp;", "&", "<", "snake_case_name", "2 * 3 * 4"]),
    ),
    max_size=40,
).map("".join)


class Checker(HTMLParser):
    """Checks that tags are nested properly, and collects the visible text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED
        assert tag not in self.open, f"{tag} inside of itself"
        assert [name for name, _ in attrs] == (["href"] if tag == "a" else ["class"] if attrs else [])
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def shown(html: str) -> str:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    return "".join(checker.text)


@given(markdown)
def test_any_text_becomes_well_formed_html(text: str) -> None:
    shown(telegram_html(text))


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="*_~`#>[]\\")))
def test_a_text_without_markup_is_shown_as_it_is(text: str) -> None:
    assert shown(telegram_html(f"x{text}")) == f"x{text}"


@given(markdown)
def test_the_shown_text_is_never_longer_than_the_markdown(text: str) -> None:
    assert units(shown(telegram_html(text))) <= units(text)


@given(st.lists(st.sampled_from(["**bold**", "a_b_c", "`x<y`", "5 > 3", "*it*", "~~no~~", "&lt;", "word"]), min_size=1))
def test_every_letter_of_the_text_is_shown(words: list[str]) -> None:
    text = " ".join(words)

    kept = [character for character in text if character not in MARKUP]
    assert [character for character in shown(telegram_html(text)) if character not in MARKUP] == kept


@pytest.mark.parametrize("mark", ["`a` ", "**a** ", "[a](https://x.y) ", "*a* "])
def test_a_line_may_have_very_many_marks(mark: str) -> None:
    assert shown(telegram_html(mark * 5_000)) == "a " * 5_000


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain & <simple>", "plain &amp; &lt;simple&gt;"),
        ("**bold** and *italic*", "<b>bold</b> and <i>italic</i>"),
        ("__bold__ and _italic_", "<b>bold</b> and <i>italic</i>"),
        ("**bold with *italic* inside**", "<b>bold with <i>italic</i> inside</b>"),
        ("~~gone~~", "<s>gone</s>"),
        ("`a < b` and `` ` ``", "<code>a &lt; b</code> and <code>`</code>"),
        ("`**not bold**`", "<code>**not bold**</code>"),
        ("snake_case_name and 2 * 3 * 4", "snake_case_name and 2 * 3 * 4"),
        ("an **open mark", "an **open mark"),
        ("# A heading with `code`", "<b>A heading with <code>code</code></b>"),
        ("## A **bold** heading", "<b>A bold heading</b>"),
        ("- one\n- two\n  * three", "• one\n• two\n  • three"),
        ("> quoted\n> *twice*\nnot", "<blockquote>quoted\n<i>twice</i></blockquote>\nnot"),
        ("[a *link*](https://x.y/?a=1&b=2)", '<a href="https://x.y/?a=1&amp;b=2">a link</a>'),
        ("**`code`** in bold", "<b><code>code</code></b> in bold"),
        ("*see [`x`](https://x.y)*", '<i>see <a href="https://x.y"><code>x</code></a></i>'),
        ("[no](javascript:alert(1))", "[no](javascript:alert(1))"),
        ("```python\nx < 1\n```\nafter", '<pre><code class="language-python">x &lt; 1</code></pre>\nafter'),
        ("```\n**as it is**", "<pre>**as it is**</pre>"),
        ('```"><script>\nx\n```', "<pre>x</pre>"),
        ("````\n```\n````", "<pre>```</pre>"),
    ],
)
def test_markdown_becomes_html(text: str, html: str) -> None:
    assert telegram_html(text) == html
