"""Model providers: the API keys in the environment, and the URLs that each key may be sent to."""

from collections.abc import Mapping

import msgspec


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A Chat Completions provider, used if `PREFIX_API_KEY` is set; set up by `PREFIX_BASE_URL` and `PREFIX_MODEL`."""

    name: str
    prefix: str
    base_url: str
    model: str

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
)


def key_for(base_url: str, environment: Mapping[str, str]) -> str | None:
    """Return the API key for this URL: `BACKSTAY_API_KEY` for any, a provider's key only for that provider's URL."""
    ours = environment.get("BACKSTAY_API_KEY")
    if ours:
        return ours
    for provider in PROVIDERS:
        key = environment.get(f"{provider.prefix}_API_KEY")
        if key and base_url.rstrip("/") == provider.url(environment):
            return key
    return None
