"""One client after another in this process: the reference whose result every executor must equal, bit for bit."""

from ktpfl_pipeline.core.client.outcome import Outcome, performed
from ktpfl_pipeline.core.client.workspace import Workspace
from ktpfl_pipeline.core.executors.base import Calls, Executor, Key, Operation, Progress, Value
from ktpfl_pipeline.core.setting import Setting
from ktpfl_pipeline.core.settings import Compute


def create(compute: Compute) -> Executor:
    return SerialExecutor()


class SerialExecutor(Executor):
    """Runs an operation for one client after another, in the order of the calls."""

    def __init__(self) -> None:
        self._space: Workspace | None = None

    def outcomes(
        self, setting: Setting, phase: str, operation: Operation[Value], calls: Calls[Key], progress: Progress
    ) -> dict[Key, Outcome[Value]]:
        space = self.workspace(setting)
        found = {}
        for done, (n, arguments) in enumerate(calls.items(), start=1):
            found[n] = performed(operation, space, n, arguments)
            progress(phase, done, len(calls))
        return found

    def workspace(self, setting: Setting) -> Workspace:
        """Return this process's workspace, a new one if `setting` is another object. Also calls `Setting.claim`."""
        if self._space is None or self._space.setting is not setting:
            self._space = Workspace(setting)
        setting.claim()
        return self._space

    def close(self) -> None:
        self._space = None
