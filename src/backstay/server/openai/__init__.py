"""The OpenAI-compatible API (/v1): Conversations, Responses, Models, Chat Completions. Views of sessions and turns."""
