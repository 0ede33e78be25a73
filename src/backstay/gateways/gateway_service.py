"""Runs a gateway as long as its process lives, and starts it again after any failure."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Literal

from backstay.errors import BackstayError
from backstay.gateways.gateway_options import GatewayOptions
from backstay.gateways.gateway_runner import Gateway
from backstay.gateways.gateway_status import GatewayStatus
from backstay.gateways.platform import Platform, SendRefused
from backstay.runtime.owner_sessions import OwnerSessions

log = logging.getLogger("backstay.gateways")

# A refused token may be accepted later, or its file may have another one then.
_AGAIN_SECONDS = 30.0

Connect = Callable[[], AbstractAsyncContextManager[Platform]]


class GatewayService:
    """A gateway of this process, with its status.

    Args:
        name: The platform and the account.
        connect: Connects to the platform; reads the token each time.
        options: Who may write to it, and how messages become turns.
    """

    def __init__(self, name: str, connect: Connect, options: GatewayOptions) -> None:
        self.connect, self.options = connect, options
        self.status = GatewayStatus(name=name)

    async def run(self, app: OwnerSessions) -> None:
        """Receive and send until this is cancelled. A failure is logged when it changes."""
        while True:
            try:
                # In a thread: it reads the token from a file, and certificates.
                async with await asyncio.to_thread(self.connect) as platform:
                    await Gateway(app, platform, self.options, self.status).run()
            except SendRefused as error:
                self._note("refused", str(error))
            except BackstayError as error:
                self._note("failing", str(error))
            except Exception as error:  # a defect must not leave the bot dead while the process lives
                if self.status.change("failing", type(error).__name__):
                    log.exception("%s: the gateway failed and is started again", self.status.name)
            await asyncio.sleep(_AGAIN_SECONDS)

    def _note(self, state: Literal["refused", "failing"], problem: str) -> None:
        if self.status.change(state, problem):
            log.error("%s: the gateway does not run, and is tried again: %s", self.status.name, problem)
