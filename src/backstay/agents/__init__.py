"""Agents: what answers a turn. They know the turn they are given, and nothing of stores or servers."""

from backstay.agents.port import Agent, AgentTurn
from backstay.agents.tools import MayHaveRun, Tool, ToolFailed, tool

__all__ = ["Agent", "AgentTurn", "MayHaveRun", "Tool", "ToolFailed", "tool"]
