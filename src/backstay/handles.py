"""Types for functions that work with local and with remote handles, in this process and on a server.

They are unions, not protocols: a type checker compares each use with both classes, and no signature is written again.
"""

from backstay.client.blocking_client import BlockingClient, BlockingSessionClient, BlockingTurnClient
from backstay.client.client import Client
from backstay.client.session_client import SessionClient
from backstay.client.turn_client import TurnClient
from backstay.runtime.app import App
from backstay.runtime.blocking import BlockingApp, BlockingSession, BlockingTurn
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn

AppLike = App | OwnerSessions | Client
SessionLike = Session | SessionClient
TurnLike = Turn | TurnClient
BlockingAppLike = BlockingApp | BlockingClient
BlockingSessionLike = BlockingSession | BlockingSessionClient
BlockingTurnLike = BlockingTurn | BlockingTurnClient
