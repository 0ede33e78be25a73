"""Model providers: the API keys in the environment, and the URLs that each key may be sent to."""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

# The API of a provider, as the prefix of the URL in an agent spec; without one it is Chat Completions.
Api = Literal["", "anthropic+", "gemini+"]
APIS: tuple[Api, ...] = get_args(Api)


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider, used if `PREFIX_API_KEY` is set; set up by `PREFIX_BASE_URL` and `PREFIX_MODEL`."""

    name: str
    prefix: str
    base_url: str
    model: str
    api: Api = ""

    def url(self, environment: Mapping[str, str]) -> str:
        """Return the URL from the environment, or the provider's own."""
        return (environment.get(f"{self.prefix}_BASE_URL") or self.base_url).rstrip("/")

    def wanted_model(self, environment: Mapping[str, str]) -> str | None:
        """Return the model to use; None if the environment sets another URL and no model, so no default is known."""
        named = environment.get(f"{self.prefix}_MODEL")
        return named or (self.model if self.url(environment) == self.base_url else None)


# The first provider whose key is set is used. The models are aliases that providers keep pointing at a current model.
PROVIDERS = (
    Provider(name="OpenAI", prefix="OPENAI", base_url="https://api.openai.com/v1", model="gpt-4o-mini"),
    Provider(name="OpenRouter", prefix="OPENROUTER", base_url="https://openrouter.ai/api/v1", model="openrouter/auto"),
    Provider(name="Mistral", prefix="MISTRAL", base_url="https://api.mistral.ai/v1", model="mistral-small-latest"),
    Provider(name="DeepSeek", prefix="DEEPSEEK", base_url="https://api.deepseek.com/v1", model="deepseek-chat"),
    Provider(
        name="Anthropic",
        prefix="ANTHROPIC",
        base_url="https://api.anthropic.com",
        model="claude-sonnet-4-5",
        api="anthropic+",
    ),
    Provider(
        name="Gemini",
        prefix="GEMINI",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        model="gemini-flash-latest",
        api="gemini+",
    ),
)


def api_of(spec: str) -> tuple[Api, str] | None:
    """Return the API and the URL of an agent spec; None if it is not a URL."""
    for api in APIS:
        url = spec.removeprefix(api)
        if spec.startswith(api) and url.startswith(("http://", "https://")):
            return api, url
    return None


def key_for(base_url: str, environment: Mapping[str, str], api: Api = "") -> str | None:
    """Return the API key for this URL: `BACKSTAY_API_KEY` for any, a provider's key only for its URL and API."""
    key = environment.get("BACKSTAY_API_KEY")
    if key:
        return key
    for provider in PROVIDERS:
        key = environment.get(f"{provider.prefix}_API_KEY")
        if key and provider.api == api and base_url.rstrip("/") == provider.url(environment):
            return key
    return None
