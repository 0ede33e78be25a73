"""A program: starts a supervisor, cancels it when a worker answers, and prints its remains as JSON."""

import asyncio
import json
import os
import sys

from backstay.config import Settings
from backstay.server.process.shutdown import Shutdown
from backstay.server.process.supervisor import Supervisor
from backstay.server.process.worker import listen
from tests.server.api_calls import raw_answer

ASK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


async def main(db: str) -> dict[str, object]:
    settings = Settings(db=db, port=0, workers=2, agent=("scripted",), grace_seconds=1)
    with listen(settings) as listener:
        running = asyncio.create_task(Supervisor(settings, listener, Shutdown(), "").run())
        answer = await asyncio.to_thread(raw_answer, listener.getsockname()[1], ASK)
        running.cancel()
        await asyncio.wait({running})
    return {
        "answer": answer.split(b"\r\n")[0].decode(),
        "cancelled": running.cancelled(),
        "children": has_children(),
        "tasks": [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(sys.argv[1]))))
