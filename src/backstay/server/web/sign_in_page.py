"""The page for unauthenticated visitors."""


def sign_in_page() -> str:
    """The page for unauthenticated visitors: only how to sign in."""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<title>Backstay</title><link rel="stylesheet" href="/static/sign_in.css">'
        "<main><h1>Backstay</h1><p>Sign in with the link that <code>backstay serve</code> printed, or create one: "
        "<code>backstay link</code></p></main></html>\n"
    )
