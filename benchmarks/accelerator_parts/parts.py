"""The pieces of the parts a to d, in order of worth, each with a guess of its seconds. Part e plans its own."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

import jax

from accelerator_parts import correctness, layers, rounds, sweeps, torch_side, work
from accelerator_parts.ledger import Ledger, Piece, Result

CHECKS = ["Cifar10CNN", "fedavg", "arfl", "CharLSTM", "FemnistCNN", "multi_krum", "rfa", "cfl"]
ALL, SOME, OWN = 4, 2, 1  # forms of the layers: all; the platform's own and flax's layers; its own
ROUNDS = [  # work, precision, clients in lockstep (0: all), forms
    ("W1", "float32", 0, ALL),
    ("W1", "bfloat16", 0, ALL),
    ("W3", "float32", 0, OWN),
    ("W4", "float32", 0, ALL),
    ("W5", "float32", 0, OWN),
    ("W2", "float32", 0, ALL),
    ("W1", "float32", 5, SOME),
    ("W1", "float32", 1, SOME),
    ("W4", "bfloat16", 0, SOME),
    ("W5", "bfloat16", 0, OWN),
    ("W2", "bfloat16", 0, SOME),
    ("W4", "float32", 8, SOME),
    ("W5", "float32", 4, OWN),
    ("W1", "float32 highest", 0, OWN),
    ("W2", "float32", 10, OWN),
    ("W3", "bfloat16", 0, OWN),
    ("W3", "float32", 4, OWN),
]
TINY_ROUNDS = [
    ("W1", "float32", 0, ALL),
    ("W1", "bfloat16", 2, OWN),
    ("W3", "float32 highest", 0, OWN),
    ("W4", "float32", 0, OWN),
    ("W5", "float32", 0, OWN),
    ("W2", "float32", 0, OWN),
]
A_FORM = 20  # seconds, about, to compile and to time it
SWEEPS = [("W3", [64, 512], 50), ("quickstart", [64, 512], 10), ("W1", [4], 4)]  # work, runs, rounds
TINY_SWEEPS = [("W3", [2], 2), ("W1", [2], 1)]
TORCH = [("loop", "float32"), ("vmap", "float32"), ("loop", "bfloat16")]


class Parts:
    """The parts a to d on the data in `folders`."""

    def __init__(self, ledger: Ledger, folders: Sequence[Path], tiny: bool) -> None:
        self.ledger, self.folders, self.tiny = ledger, folders, tiny
        self.load = lru_cache(maxsize=1)(self._load)

    def _load(self, name: str) -> work.Work:
        if name == "quickstart":
            return work.quickstart(self.folders, self.tiny)
        return work.load(name, self.folders, self.tiny)

    def pieces(self, part: str) -> Iterator[Piece]:
        """The pieces of a part."""
        makers: dict[str, Callable[[], Iterator[Piece]]] = {"a": self._a, "b": self._b, "c": self._c, "d": self._d}
        return makers[part]()

    def _a(self) -> Iterator[Piece]:
        for name in CHECKS[:3] if self.tiny else CHECKS:
            if name in correctness.RULES:
                yield Piece(f"a/quickstart {name}", 40, partial(self._correctness, name))
            else:
                yield Piece(f"a/gradient {name}", 30, partial(layers.compare, name))

    def _correctness(self, rule: str) -> list[Result]:
        return correctness.compare(self.load("quickstart"), rule, 4 if self.tiny else 100)

    def _b(self) -> Iterator[Piece]:
        yield Piece("b/products", 20, partial(rounds.products, self.tiny))
        for name, precision, width, forms in TINY_ROUNDS if self.tiny else ROUNDS:
            shown = f"{width} clients" if width else "all clients"
            run = partial(self._rounds, name, width, precision, forms)
            yield Piece(f"b/{name} {precision}, {shown}", 10 + A_FORM * forms, run)

    def _rounds(self, name: str, width: int, precision: str, number: int) -> list[Result]:
        loaded = self.load(name)
        own, *others = loaded.forms(jax.devices()[0].platform)
        forms = {ALL: [own, *others], SOME: [own, *others[-1:]], OWN: [own]}[number]
        return rounds.measure(loaded, width or loaded.cohort_size, precision, forms, self.tiny)

    def _c(self) -> Iterator[Piece]:
        for name, runs, num_rounds in TINY_SWEEPS if self.tiny else SWEEPS:
            yield Piece(f"c/{name}", 60, partial(self._sweep, name, runs, num_rounds))

    def _sweep(self, name: str, runs: list[int], num_rounds: int) -> list[Result]:
        return sweeps.measure(self.load(name), runs, num_rounds, self.tiny)

    def _d(self) -> Iterator[Piece]:
        for way, precision in TORCH:
            yield Piece(f"d/W1 PyTorch {way} {precision}", 30, partial(self._torch, way, precision))

    def _torch(self, way: str, precision: str) -> list[Result]:
        best = torch_side.best_of(self.ledger.lines, "W1", precision)
        return torch_side.measure(self.load("W1"), way, precision, best, self.tiny)
