"""Tools for tests of agents: a scripted model, one turn with its events, a process that is killed, and a manual clock.

Nothing else in Backstay imports this package. The pytest fixtures are in `backstay.testing.pytest_fixtures`; name that
module in `pytest_plugins`.
"""

from backstay.testing.agent_process import AgentProcess
from backstay.testing.manual_clock import ManualClock
from backstay.testing.model_script import ModelAnswer, ModelCut, ModelHold, ModelRefusal, ModelRequest
from backstay.testing.scripted_model import ScriptedModel
from backstay.testing.turn_run import TurnRun, events_until, finish_turn, run_turn

__all__ = [
    "AgentProcess",
    "ManualClock",
    "ModelAnswer",
    "ModelCut",
    "ModelHold",
    "ModelRefusal",
    "ModelRequest",
    "ScriptedModel",
    "TurnRun",
    "events_until",
    "finish_turn",
    "run_turn",
]
