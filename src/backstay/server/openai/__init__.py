"""The OpenAI wire under /v1: Conversations, Responses, Models and Chat Completions as views of sessions and turns."""
