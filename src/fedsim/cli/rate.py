"""`fedsim rate`: a card for a rule."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim import interrupts
from fedsim.cli.run import add_options, parse_target, warn
from fedsim.errors import ConfigError

if TYPE_CHECKING:
    from fedsim.config.experiment import Experiment
    from fedsim.engine.plan import Plan
    from fedsim.rating.card import Card
    from fedsim.runs.folder import RunFolder

DATA = "data.name"
EPILOG = """\
settings of the rule can be given, such as --server.pre-aggregators nnm or --server.num-byzantine 4

examples:
  fedsim rate my_rules.py:my_rule             a rule of your own, on the digits (ten minutes on two cores)
  fedsim rate median trimmed_mean             built-in rules; the folder gets a card of each
  fedsim rate rfa --server.pre-aggregators nnm
  fedsim rate my_rules.py:my_rule --data mnist

Rules come first, then options. The same command resumes. Attacks are chosen on other splits than those of the numbers.
docs/how-to/rate.md has more.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to the parser's `commands`."""
    parser = commands.add_parser(
        "rate",
        help="rate a rule: its worst accuracy under a fixed adversary, its speed, its checks, on a card",
        description="Rates rules by a protocol that is the same for all, and writes a card of each: HTML and Markdown.",
        epilog=EPILOG,
        usage="fedsim rate RULE [RULE ...] [--data digits|mnist] [--out DIR] [--dry-run] [--KEY VALUE]",
    )
    parser.add_argument("rule", metavar="RULE", nargs="+", help='a built-in rule, or a plug-in "file.py:function"')
    add_options(parser, "runs/rating-<data>")


def call(options: argparse.Namespace, overrides: dict[str, Any]) -> None:
    """Rates the rules; `overrides` are settings that all of them get."""
    from fedsim.config.registry import lookup
    from fedsim.engine import devices
    from fedsim.rating import protocol
    from fedsim.report.names import file_part

    if options.target is None:
        devices.use_one_per_core()  # before a check starts JAX
    data = str(overrides.pop(DATA, "digits"))
    lookup("--data", data, protocol.DATA_SETS)
    if protocol.RULE in overrides:
        raise ConfigError(f"--{protocol.RULE}: must be left out; give rules as arguments: fedsim rate RULE")
    in_order = sorted(overrides.items(), key=lambda setting: (setting[0] not in protocol.RULE_KEYS, setting[0]))
    rules = [{protocol.RULE: rule, **dict(in_order)} for rule in dict.fromkeys(options.rule)]
    cards = [f"cards/{data}-{file_part(protocol.name_of(keys)).lower()}" for keys in rules]
    if len(set(cards)) < len(cards):
        raise ConfigError("RULE: names must differ in letters or digits, since cards are named by these")
    for keys in rules:
        protocol.check_keys(data, keys)
    if options.dry_run or options.target is not None:
        _show_plans(options, data, rules)
        return
    from fedsim import report
    from fedsim.engine import prepare
    from fedsim.runs.folder import RunFolder
    from fedsim.terminal import make_console

    folder = RunFolder(options.out or Path(f"runs/rating-{data}"))
    for keys in rules[1:]:
        prepare(protocol.read(data, "labels", keys))  # refuses a rule that fails before the runs of others
    for keys, name in zip(rules, cards, strict=True):
        card = _rate(data, keys, folder, options)
        cells = report.as_csv([cell._asdict() for cell in card.cells])
        texts = {f"{name}.csv": cells, f"{name}.md": card.markdown(), f"{name}.html": card.page()}
        for file, text in texts.items():
            folder.write_text(file, text)
        make_console().print(report.terminal(card.tables()), *card.notes)
        for file in texts:
            print(folder.path / file)


def _rate(data: str, keys: Mapping[str, Any], folder: "RunFolder", options: argparse.Namespace) -> "Card":
    from fedsim import report
    from fedsim.rating import costs, protocol
    from fedsim.rating.card import BESIDE, Card, built_in_cells
    from fedsim.rating.checks import check
    from fedsim.report.mixtures import check_inputs

    name = protocol.name_of(keys)
    print(f"fedsim: {name}: checks ...", file=sys.stderr)
    checks = check(data, keys)
    attacks, labels = (protocol.read(data, preset, keys) for preset in ("attacks", "labels"))
    for experiment in (attacks, labels):
        _run(experiment, folder, options)
    adversary, chosen = str(attacks.adversary), report.load(folder, config=attacks)
    evaluation = protocol.against_worst(protocol.read(data, "evaluation", keys), adversary, chosen)
    _run(evaluation, folder, options)
    print(f"fedsim: {name}: costs ...", file=sys.stderr)
    compared = {protocol.name_of(of): of for of in (keys, *({protocol.RULE: rule} for rule in BESIDE))}
    milliseconds = {of: costs.measure(folder, data, rule) for of, rule in compared.items()}
    evaluated, labeled = (report.load(folder, config=experiment) for experiment in (evaluation, labels))
    every = chosen, evaluated, labeled
    mixtures = check_inputs([folder], [[run for results in every for _, run in results.sources]])
    notes = list(dict.fromkeys([*(note for results in every for note in results.notes), *mixtures]))
    others = built_in_cells(data)
    return Card(name, data, keys, adversary, evaluation, evaluated, labeled, milliseconds, checks, others, notes)


def _run(experiment: "Experiment", folder: "RunFolder", options: argparse.Namespace) -> None:
    from fedsim.engine import prepare, run_plan
    from fedsim.terminal import show_progress

    plan = prepare(experiment)
    _warn(plan, experiment)
    how = "computes it again" if options.force else "resumes it"
    interrupts.message = f"fedsim: interrupted; {folder.path} is incomplete, the same command {how}"
    with interrupts.raised(), show_progress(folder.path, plan.runs) as bar:
        run_plan(plan, folder.path, [bar], force=options.force, allow_mismatch=options.allow_mismatch)


def _warn(plan: "Plan", experiment: "Experiment") -> None:
    """Warnings about keys that the user gave; the protocol's own are meant."""
    warn([warning for warning in plan.warnings if warning.partition(":")[0] in experiment.overridden])


def _show_plans(options: argparse.Namespace, data: str, rules: list[dict[str, Any]]) -> None:
    """Shows what would be run for each rule, on this machine or another."""
    from fedsim.cli.plan import show_forecast, show_plan
    from fedsim.engine import make_plan, prepare
    from fedsim.rating import protocol

    target, path = parse_target(options), options.out or Path(f"runs/rating-{data}")
    for keys in rules:
        experiments = [protocol.read(data, preset, keys) for preset in ("attacks", "labels", "evaluation")]
        if target is not None:
            for experiment in experiments:
                show_forecast(make_plan(experiment, target.machine), target)
            continue
        plans = [prepare(experiment) for experiment in experiments]
        _warn(plans[0], experiments[0])
        left = [show_plan(plan, path, options.force, options.allow_mismatch) for plan in plans]
        cells = {(run.data.partition, run.corruption.fraction) for run in plans[0].runs}
        num_chosen = len(cells) * len({run.seed for run in plans[-1].runs})
        print(f"The evaluation also has runs under the attacks that are chosen: up to {num_chosen}.")
        _show_slowest(left[0], str(experiments[0].adversary), num_chosen)


def _show_slowest(plan: "Plan", adversary: str, num_chosen: int) -> None:
    """Shows how long the runs of `plan`, and those that are chosen, take under the last attack of the adversary.

    Its last member is the slowest: `ascent` on the loss. A rule whose program depends on f is timed with each.
    """
    from fedsim.config.adversaries import ADVERSARIES, ATTACK
    from fedsim.config.roles import server_component
    from fedsim.forecast.estimate import server_seconds
    from fedsim.report.names import duration

    attack = ADVERSARIES[adversary][-1][ATTACK][-1]
    groups = [group for group in plan.groups if group.configs[0].attack.kind == attack]
    if not groups:
        return
    print(f"fedsim: compiling {attack} to time it ...", file=sys.stderr)
    rule_of = lambda group: server_component(group.configs[0])
    timed = {rule_of(group): group for group in groups}
    seconds = {rule: server_seconds(group.configs[0], group.dataset, group.layout) for rule, group in timed.items()}
    num_runs = sum(len(group.runs) for group in groups)
    of_runs = sum(seconds[rule_of(group)] * group.total_rounds / group.layout.run_devices for group in groups)
    of_round = " to ".join(dict.fromkeys(f"{value:.2g}" for value in (min(seconds.values()), max(seconds.values()))))
    print(
        f"Under {attack}, the slowest attack, a round takes {of_round} s more: {duration(of_runs)} for its "
        f"{num_runs} runs, and at most {duration(of_runs / num_runs * num_chosen)} for those of the evaluation."
    )
