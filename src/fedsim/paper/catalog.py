"""The paper's results: their sections, configurations and published values."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class PaperResult:
    """A table, figure or statement of the paper that a configuration reproduces."""

    id: str
    """The configuration's `name`."""
    description: str
    where: str
    """Section, table or figure of the paper."""
    published: str
    """What the paper gives, in a few words."""

    @property
    def config(self) -> str:
        """The configuration's path in the repository."""
        return f"configs/paper/{self.id}.toml"

    def command(self, budget: str = "paper") -> str:
        """The command that reproduces it."""
        command = f"fedsim run {self.config}"
        return command if budget == "paper" else f"{command} --preset {budget}"


RESULTS = {
    result.id: result
    for result in (
        PaperResult("intro", "one corrupted client moves the learned line", "Sec. 3.3, Fig. 1", "a figure"),
        PaperResult("table2-cifar10", "five rules on CIFAR-10", "Sec. 5.2, Table 2", "35 accuracies"),
        PaperResult("table2-femnist", "five rules on FEMNIST", "Sec. 5.2, Table 2", "35 accuracies"),
        PaperResult("table2-shakespeare", "five rules on Shakespeare", "Sec. 5.2, Table 2", "35 accuracies"),
        PaperResult("table2-digits", "Table 2 on handwritten digits", "Sec. 5.2, Table 2", "its design only"),
        PaperResult("convergence", "curves on FEMNIST, half corrupted", "Sec. 5.2, Fig. 2", "a figure"),
        PaperResult("convergence-digits", "curves on digits, half corrupted", "Sec. 5.2, Fig. 2", "a figure"),
        PaperResult("fraction-femnist", "FEMNIST, 70 % corrupted", "Sec. 5.2", "above 79 %"),
        PaperResult("fraction", "from none to 90 % corrupted", "Sec. 5.3, Fig. 3", "a figure"),
        PaperResult("heterogeneity", "curves by Dirichlet's alpha", "Sec. 5.4, Fig. 4", "a figure"),
        PaperResult("lambda", "weights and accuracy over lambda", "Sec. 5.5, Fig. 5", "a figure"),
        PaperResult("autoweight", "weights compared with FedAvg's", "Sec. 5.6, Fig. 6, 7", "two figures"),
        PaperResult("limits", "collusion, false losses, flipped updates", "Sec. 6", "text only"),
        PaperResult("fairness", "the benign client that is hardest to learn", "Sec. 6", "text only"),
        PaperResult("bound", "terms of the bound and the objective", "Theorems 1 and 2, Eq. 6", "formulas"),
    )
}

DIGITS = "digits"
"""The budget that replaces the paper's data set by handwritten digits."""
BUDGETS = ("paper", "medium", "small", DIGITS)
"""In the order of how close they are to the paper."""


def rank(budget: str) -> int:
    """The budget's position in `BUDGETS`: 0 is closest to the paper, unknown budgets come last."""
    return BUDGETS.index(budget) if budget in BUDGETS else len(BUDGETS)


class ParsedName(NamedTuple):
    """The parts of an experiment's name."""

    result: PaperResult
    budget: str


def parse_name(name: str) -> ParsedName | None:
    """The result and budget of an experiment's `name`, such as "lambda-small"; None if it is not a result."""
    if name in RESULTS:
        return ParsedName(RESULTS[name], "paper")
    head, _, budget = name.rpartition("-")
    return ParsedName(RESULTS[head], budget) if head in RESULTS else None
