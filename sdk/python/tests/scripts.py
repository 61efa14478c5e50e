"""Plays the scripts of sdk/vectors through the SDK's own tasks, resources and ledger."""

from __future__ import annotations

from plimsoll import Kind, Resource, Task
from plimsoll import _layout as at
from plimsoll._ledger import Ledger


class Player:
    """An application whose clock is the script's."""

    def __init__(self) -> None:
        self.memory = bytearray()
        self.now_ns = 0
        self._resources: dict[str, Resource] = {}
        self._tasks: dict[str, Task] = {}
        self._ledger: Ledger | None = None

    def play(self, script: str) -> bytes:
        """The ledger after the last step."""
        for line in script.splitlines():
            if line and not line.startswith("#"):
                step, _, rest = line.partition(" ")
                getattr(self, f"step_{step}")(rest)
        return bytes(self.memory)

    @property
    def ledger(self) -> Ledger:
        """What the first step made."""
        assert self._ledger is not None, "a script begins with `ledger`"
        return self._ledger

    def _of(self, rest: str) -> tuple[Task, Resource]:
        task, _, name = rest.partition(" ")
        return self._tasks[task], self._resources[name]

    def _of_n(self, rest: str, numbers: int) -> tuple[Task, Resource, list[int]]:
        words = rest.split(" ")
        task, resource = self._of(" ".join(words[:-numbers]))
        return task, resource, [int(w) for w in words[-numbers:]]

    # The steps.

    def step_ledger(self, rest: str) -> None:
        app, *numbers = rest.split(" ")
        resources, lanes, tasks, accounts, pid, pid_started, created_ns = map(int, numbers)
        sizes = at.Sizes(resources, lanes, tasks, accounts)
        self.memory = bytearray(sizes.file_bytes)
        self._ledger = Ledger(self.memory, sizes, lambda: self.now_ns)
        self._ledger.write_header(app, pid, pid_started, created_ns)

    def step_now(self, rest: str) -> None:
        self.now_ns = int(rest)

    def step_clock(self, rest: str) -> None:
        self.ledger.words[at.CLOCK_AT] = int(rest)

    def step_exact(self, rest: str) -> None:
        self.ledger.words[at.FLAGS_AT] = int(rest)

    def step_beat(self, rest: str) -> None:
        self.ledger.beat(int(rest))

    def step_resource(self, rest: str) -> None:
        kind, capacity, name = rest.split(" ", 2)
        resource = self._resources[name] = Resource(Kind[kind], name, int(capacity))
        self.ledger.resource_index(resource)

    def step_task(self, rest: str) -> None:
        name, key, flags, tid, deadline_ns, label = [*rest.split(" ", 5), ""][:6]
        deadline_s = (int(deadline_ns) - self.now_ns) / 1e9 if int(deadline_ns) else None
        task = self._tasks[name] = Task(self.ledger, lambda: self.now_ns, label, int(key), flags=int(flags), deadline_s=deadline_s)
        task.start(int(tid))

    def step_progress(self, rest: str) -> None:
        name, done, total = rest.split(" ")
        self._tasks[name].progress(int(done), int(total))

    def step_wait(self, rest: str) -> None:
        task, resource = self._of(rest)
        task.wait(resource)

    def step_unwait(self, rest: str) -> None:
        task, resource = self._of(rest)
        task.unwait(resource)

    def step_get(self, rest: str) -> None:
        task, resource, (n,) = self._of_n(rest, 1)
        task.get(resource, n)

    def step_free(self, rest: str) -> None:
        task, resource, (n,) = self._of_n(rest, 1)
        task.free(resource, n)

    def step_slow(self, rest: str) -> None:
        task, resource, (n, delay_ns) = self._of_n(rest, 2)
        task.slow(resource, n, delay_ns)

    def step_end(self, rest: str) -> None:
        name, lane, *cancelled = rest.split(" ")
        task = self._tasks.pop(name)
        if cancelled:
            task._cancel = _Cancelled()  # type: ignore[assignment]
        task.end(lane=int(lane))


class _Cancelled:
    """Stands for an order of the agent's that was obeyed."""

    acted = True

    def ended(self, yielded: bool) -> None:
        assert yielded
