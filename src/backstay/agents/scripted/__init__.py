"""The scripted agent and its tools: answers without a model, for demonstrations and tests."""
