"""A result's page: claims and tables that compare measured and published values."""

from typing import NamedTuple

from rich.console import Group
from rich.text import Text

from fedsim.paper.catalog import PaperResult
from fedsim.paper.claims import Claim
from fedsim.report.accuracy import draws_text
from fedsim.report.names import duration
from fedsim.report.render import markdown as as_markdown
from fedsim.report.render import terminal as as_terminal
from fedsim.report.results import Results
from fedsim.report.table import Table, text_table
from fedsim.runs.folder import RESUMED, SECONDS

SOURCE = '"Auto-weighted Robust Federated Learning with Corrupted Data Sources", arXiv 2101.05880'


class Page(NamedTuple):
    """A run folder's claims and tables."""

    result: PaperResult
    budget: str
    results: Results
    claims: list[Claim]
    tables: list[Table]

    @property
    def heading(self) -> str:
        """For example "lambda (budget small), Sec. 5.5, Fig. 5: weights and accuracy over lambda"."""
        return f"{self.result.id} (budget {self.budget}), {self.result.where}: {self.result.description}"

    @property
    def protocol(self) -> str:
        """What was run, such as "Measured: 60 rounds, 5 splits x 3 seeds"; options may change a configuration."""
        settings = self.results.settings
        rounds = sorted({int(setting.rounds[-1]) for setting in settings})
        ends = " to ".join(f"{number:,}" for number in dict.fromkeys((rounds[0], rounds[-1])))
        return f"Measured: {ends} rounds, {draws_text(setting.draws for setting in settings)}"

    @property
    def machine(self) -> str:
        """Device, version and duration, for example "2 x AMD EPYC, jax 0.10.2, 24 min"."""
        manifest = self.results.manifests[0]
        device, seconds = manifest["device"], sum(manifest.get(name, 0.0) for name in SECONDS)
        mixed = " (partly on other machines)" if "mismatches" in manifest else ""
        at_least = "at least " if manifest.get(RESUMED) else ""
        taken = f"{at_least}{duration(seconds)}" if manifest["status"] == "complete" else "not complete"
        return f"{device['count']} x {device['kind']}, jax {manifest['versions']['jax']}{mixed}, {taken}"

    @property
    def all_tables(self) -> list[Table]:
        """All tables, the claims first."""
        margin = lambda claim: claim.margin.text if claim.margin else ""
        rows = tuple((c.text, c.published, c.measured, margin(c), c.verdict) for c in self.claims)
        header = ("Claim", "Published", "Measured", "Margin (mean, 95 % interval)", "")
        return [text_table("", header, rows, num_text=5), *self.tables]


def terminal(page: Page) -> Group:
    """The page for a terminal."""
    return Group(Text(f"\nThe paper's {page.heading}\n{page.protocol}"), as_terminal(page.all_tables))


def markdown(page: Page) -> str:
    """The page in Markdown."""
    return "\n\n".join(markdown_parts(page))


def markdown_parts(page: Page) -> list[str]:
    """The page in Markdown: heading, protocol, claims, and one part for each table."""
    command = page.result.command(page.budget)
    run = f"Command: `{command}`. {page.protocol}; {page.machine}. Complete configuration: config.toml."
    return [f"# {page.heading}", f"Paper: {SOURCE}. {run}", *(as_markdown([table]) for table in page.all_tables)]
