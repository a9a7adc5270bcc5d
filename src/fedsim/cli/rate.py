"""`fedsim rate`: a card for a rule."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim import interrupts
from fedsim.errors import ConfigError

if TYPE_CHECKING:
    from fedsim.config.experiment import Experiment
    from fedsim.rating.card import Card, Cell
    from fedsim.runs.folder import RunFolder

AGGREGATOR, DATA = "server.aggregator", "data.name"
EPILOG = """\
any key of the configuration can be set, such as --server.pre-aggregators nnm or --trimmed-mean.num-byzantine 3

examples:
  fedsim rate my_rules.py:my_rule             a rule of your own, on the digits (ten minutes on two cores)
  fedsim rate median trimmed_mean             built-in rules; the folder gets a card of each
  fedsim rate rfa --server.pre-aggregators nnm
  fedsim rate my_rules.py:my_rule --data mnist

The same command resumes. Attacks are chosen on other splits than those of the numbers; docs/how-to/rate.md has more.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    parser = commands.add_parser(
        "rate",
        help="rate a rule: its worst accuracy under a fixed adversary, its speed, its checks, on a card",
        description="Rates rules by a protocol that is the same for all, and writes a card of each: HTML and Markdown.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="fedsim rate RULE [RULE ...] [--data digits|mnist] [--out DIR] [--dry-run] [--KEY VALUE]",
        allow_abbrev=False,
    )
    parser.add_argument("rule", metavar="RULE", nargs="+", help='a built-in rule, or a plug-in "file.py:function"')
    parser.add_argument("--out", metavar="DIR", type=Path, help="run folder (default: runs/rating-<data>)")
    parser.add_argument(
        "--allow-mismatch", action="store_true", help="go on although code, versions or plug-ins have changed since"
    )
    parser.add_argument("--dry-run", action="store_true", help="show the plan without running it")
    parser.add_argument(
        "--target", metavar="DEVICE", help="with --dry-run: compile for a device, present or not, as `fedsim run` does"
    )


def call(options: argparse.Namespace, overrides: dict[str, Any]) -> int:
    """Rates the rules; `overrides` are keys that all of them get."""
    from fedsim.config.registry import lookup
    from fedsim.rating import protocol

    data = str(overrides.pop(DATA, "digits"))
    lookup("--data", data, protocol.DATA_SETS)
    if AGGREGATOR in overrides:
        raise ConfigError(f"--{AGGREGATOR}: must be left out; give rules as arguments: fedsim rate RULE")
    every = [{AGGREGATOR: rule, **overrides} for rule in options.rule]
    for keys in every:
        protocol.read(data, "attacks", keys).runs()  # all errors before the first run
    if options.dry_run or options.target:
        return _show_plans(options, data, every)
    from fedsim import report
    from fedsim.rating.card import as_csv
    from fedsim.report.names import file_part
    from fedsim.runs.folder import RunFolder
    from fedsim.terminal import make_console

    folder = RunFolder(options.out or Path(f"runs/rating-{data}"))
    cells: list[Cell] = []
    for keys in every:
        card = _rate(data, keys, folder, options.allow_mismatch)
        cells += card.cells
        name = file_part(card.rule).lower()
        folder.write_text(f"cards/{name}.md", card.markdown())
        folder.write_text(f"cards/{name}.html", card.page())
        folder.write_text("cards/cells.csv", report.as_csv(as_csv(cells)))
        make_console().print(report.terminal(card.tables()))
        for suffix in ("md", "html"):
            print(folder.path / "cards" / f"{name}.{suffix}")
    return 0


def _rate(data: str, keys: Mapping[str, Any], folder: "RunFolder", allow_mismatch: bool) -> "Card":
    from fedsim import report
    from fedsim.rating import checks, costs, protocol
    from fedsim.rating.card import Card, built_in_cells, cells_of, name_of

    attacks, labels = protocol.read(data, "attacks", keys), protocol.read(data, "labels", keys)
    name = name_of(keys)
    for experiment in (attacks, labels):
        _run(experiment, folder, allow_mismatch)
    adversary = str(attacks.adversary)
    chosen = report.load(folder, config=attacks)
    evaluation = protocol.against_worst(protocol.read(data, "evaluation", keys), adversary, chosen)
    _run(evaluation, folder, allow_mismatch)
    interrupts.set_message(f"fedsim: interrupted; all runs are in {folder.path}, the same command writes the card")
    print(f"fedsim: {name}: checks and costs ...", file=sys.stderr)
    compared = [{AGGREGATOR: rule} for rule in costs.BESIDE if rule != keys[AGGREGATOR] or len(keys) > 1]
    milliseconds = costs.measure(folder, data, [keys, *compared])
    return Card(
        name,
        data,
        keys,
        evaluation,
        adversary,
        cells_of(name, adversary, report.load(folder, config=evaluation)),
        built_in_cells(data),
        report.load(folder, config=labels),
        dict(zip(map(name_of, [keys, *compared]), milliseconds, strict=True)),
        checks.check(evaluation.runs()[0]),
    )


def _run(experiment: "Experiment", folder: "RunFolder", allow_mismatch: bool) -> None:
    from fedsim.engine import prepare, run_plan
    from fedsim.terminal import show_progress

    plan = prepare(experiment)
    for warning in plan.warnings:
        if warning.partition(":")[0] in experiment.overridden:
            print(f"fedsim: warning: {warning}", file=sys.stderr)
    interrupts.set_message(f"fedsim: interrupted; {folder.path} is incomplete, the same command resumes it")
    with interrupts.raised(), show_progress(folder.path, plan.runs) as bar:
        run_plan(plan, folder.path, [bar], allow_mismatch=allow_mismatch)


def _show_plans(options: argparse.Namespace, data: str, every: list[dict[str, Any]]) -> int:
    """Shows what would be run for each rule, on this machine or another."""
    from fedsim.cli.plan import show_forecast, show_plan
    from fedsim.engine import make_plan, prepare
    from fedsim.forecast import targets
    from fedsim.rating import protocol

    target = targets.parse(options.target) if options.target else None
    if target is not None:
        if not options.dry_run:
            raise ConfigError("--target: must be used with --dry-run")
        targets.disable_accelerators()
    for keys in every:
        for preset in ("attacks", "labels", "evaluation"):
            experiment = protocol.read(data, preset, keys)
            if target is None:
                show_plan(prepare(experiment), options.out or Path(f"runs/rating-{data}"))
            else:
                show_forecast(make_plan(experiment, target.machine), target)
    print("The evaluation then has as many runs as splits under each chosen attack, too. Attacks are not in the times.")
    return 0
