"""Providers: whose models a key in the environment opens, and to whom that key may be shown."""

from collections.abc import Mapping

import msgspec


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """Speaks Chat Completions to whoever has `PREFIX_API_KEY`; `PREFIX_BASE_URL` and `PREFIX_MODEL` choose."""

    name: str
    prefix: str
    base_url: str
    model: str

    def url(self, environment: Mapping[str, str]) -> str:
        """Where it is asked: at home, or where the environment says."""
        return (environment.get(f"{self.prefix}_BASE_URL") or self.base_url).rstrip("/")

    def wanted_model(self, environment: Mapping[str, str]) -> str | None:
        """The model to ask; None where only the operator can know: our usual one is this provider's, at home."""
        named = environment.get(f"{self.prefix}_MODEL")
        return named or (self.model if self.url(environment) == self.base_url else None)


# The first whose key is set is asked. The models are names that their providers keep pointing at a current one.
PROVIDERS = (
    Provider(name="OpenAI", prefix="OPENAI", base_url="https://api.openai.com/v1", model="gpt-4o-mini"),
    Provider(name="OpenRouter", prefix="OPENROUTER", base_url="https://openrouter.ai/api/v1", model="openrouter/auto"),
    Provider(name="Mistral", prefix="MISTRAL", base_url="https://api.mistral.ai/v1", model="mistral-small-latest"),
    Provider(name="DeepSeek", prefix="DEEPSEEK", base_url="https://api.deepseek.com/v1", model="deepseek-chat"),
)


def key_for(base_url: str, environment: Mapping[str, str]) -> str | None:
    """The key to show there: a provider's is shown to that provider alone, `BACKSTAY_API_KEY` to whoever is named."""
    ours = environment.get("BACKSTAY_API_KEY")
    if ours:
        return ours
    for provider in PROVIDERS:
        key = environment.get(f"{provider.prefix}_API_KEY")
        if key and base_url.rstrip("/") == provider.url(environment):
            return key
    return None
