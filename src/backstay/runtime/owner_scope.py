"""The scope of one owner: everything that a handle of the owner needs of an open app."""

from typing import TypeVar

from backstay.errors import ConfigError
from backstay.runtime.task_supervisor import TaskSupervisor
from backstay.store.commands import Read, Write

T = TypeVar("T")


class OwnerScope:
    """Runs the commands of one owner and rejects those of any other."""

    def __init__(self, supervisor: TaskSupervisor, owner: str) -> None:
        self.supervisor, self.owner = supervisor, owner

    async def run(self, command: Write[T] | Read[T]) -> T:
        """Run a command of this owner. If it wrote to a session, the followers of the session are woken."""
        if command.owner != self.owner:
            raise ConfigError(
                f"{command.name} is for {command.owner!r}, not for {self.owner!r}",
                hint="Pass the owner of this part of the app to the command.",
            )
        result = await self.supervisor.store.run(command)
        if isinstance(command, Write) and command.wakes:
            self.supervisor.notifier.publish_result(result)
        return result
