"""A process that runs a peer's rules, with limits of time and memory for each call."""

import json
import os
import select
import subprocess
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parent / "peers" / "rules_peer.py"


class PeerError(Exception):
    """A call that failed."""


class Peer:
    """Commands to `peers/rules_peer.py`; a process that had to be stopped is started again with the same updates.

    Methods raise `PeerError`, or `TimeoutError` after `limit` seconds of a call.
    """

    def __init__(self, python: str, threads: int, memory: int, limit: float) -> None:
        self.command = [python, str(SCRIPT), "--threads", str(threads), "--memory", str(memory)]
        self.limit = limit
        self.shape: tuple[int, int] | None = None
        self.versions: dict[str, str] = self._start()

    def data(self, num_clients: int, size: int) -> None:
        """Sets the updates for later calls."""
        self.shape = (num_clients, size)
        self._ask(["data", *self.shape], limit=600.0)

    def use(self, library: str, rule: str, f: int, file: Path) -> float:
        """Seconds of the first call of a rule; saves its result in `file`."""
        return self._ask(["use", library, rule, f, str(file)], self.limit)

    def time(self, library: str, number: int) -> float:
        """Mean seconds of `number` calls of the rule of the last `use`."""
        return self._ask(["time", library, number], self.limit * (number + 1))

    def _start(self) -> dict[str, str]:
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        return self._answer(600.0)

    def _ask(self, command: list[Any], limit: float) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write((json.dumps(command) + os.linesep).encode())
        answer = self._answer(limit)
        if "error" in answer:
            raise PeerError(answer["error"])
        return float(answer["seconds"])

    def _answer(self, limit: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], limit)
        line = self.process.stdout.readline() if ready else b""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.process.kill()
        self.process.wait()
        shape, self.shape = self.shape, None
        if shape is None:
            raise RuntimeError(f"{' '.join(self.command)} failed to start")
        self._start()
        self.data(*shape)
        raise PeerError("the process died") if ready else TimeoutError(f"more than {limit:g} s")
