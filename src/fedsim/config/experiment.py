"""An experiment: values of keys and grids over them, and the runs that they describe."""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fedsim.config import adversaries, bundled
from fedsim.config.clients import has_clients, lists_names, number_clients
from fedsim.config.components import component_names, flatten, unmet
from fedsim.config.fields import DEFAULTS, FIXED
from fedsim.config.kinds import KINDS
from fedsim.config.registry import did_you_mean, find, find_plugin
from fedsim.config.resolve import Schema
from fedsim.config.roles import NOT_IN_IDS, run_id
from fedsim.config.schema import NOT_MALICIOUS, Config
from fedsim.config.values import DEFAULT, format_toml, to_toml
from fedsim.errors import ConfigError

Block = dict[str, list[Any]]  # dotted key -> values


@dataclass(frozen=True, repr=False)
class Experiment:
    """A configuration and its sweep: each block is a grid, and the runs are those of all blocks."""

    values: dict[str, Any]
    """Values by dotted key; all other keys are at their defaults."""
    sweep: tuple[Block, ...]
    """Grids over any keys."""
    schema: Schema
    """All keys, those of plug-ins included."""
    overridden: frozenset[str] = field(default=frozenset(), compare=False)
    """The keys that overrides set or sweep."""
    named_sections: frozenset[str] = field(default=frozenset(), compare=False)
    """The sections of all components that the configuration names anywhere, also in other presets."""
    claims: str | None = field(default=None, compare=False)
    """The function whose claims the report checks, "file.py:function": no part of any run."""
    adversary: str | None = field(default=None, compare=False)
    """The list of attacks that `sweep` has: `adversaries.ADVERSARIES`."""
    data: Any = field(default=None, compare=False, repr=False)
    """A `FederatedDataset` in memory, in place of `data.name`; None: the data set that the configuration names."""
    explain: Callable[[ConfigError], ConfigError] = field(default=lambda error: error, compare=False, repr=False)
    """Adds to an error of `runs` where the value comes from."""

    @property
    def name(self) -> str:
        """The name of the run folder."""
        return str(self.values.get("name", "fedsim"))

    def points(self) -> Iterator[dict[str, Any]]:
        """The points of all grids in the order of the blocks; the first key of a block varies slowest."""
        for block in self.sweep or ({},):
            axes = {key: [value] for key, value in self.values.items() if key not in block} | block
            for point in itertools.product(*axes.values()):
                yield {key: value for key, value in zip(axes, point, strict=True) if value != DEFAULT}

    def with_natural_clients(self) -> "Experiment":
        """The experiment with natural clients if it sets no partition, and its data name their clients.

        Raises `ConfigError` if only some of the data sets of a sweep do.
        """
        key, natural = "data.partition", "natural"
        is_used = lambda name: name in ("data.name", key, "arrays.path") or name.endswith(".client")
        sweep = tuple({name: block[name] for name in filter(is_used, block)} for block in self.sweep)
        points = replace(self, sweep=sweep).points()
        have_clients = {has_clients(values) for values in points if key not in values}
        if len(have_clients) > 1:
            raise ConfigError(f'{key}: must be set, since only some of the data sets have clients ("{natural}")')
        if have_clients != {True}:
            return self
        named = lambda values: [natural if value == DEFAULT else value for value in values]
        sweep = tuple(block | {key: named(block[key])} if key in block else block for block in self.sweep)
        return replace(self, values=self.values | {key: natural}, sweep=sweep)

    def runs(self, client_names: Callable[[Config], Sequence[str] | None] = lambda config: None) -> list[Config]:
        """The resolved points, those of one id once, with the most rounds and all that any of them records.

        Clients that a run lists by name are listed by number if `client_names(run)` has the names of all. Raises
        `ConfigError` if one is invalid.

        >>> import fedsim
        >>> [run.seed for run in fedsim.load({}, seed=fedsim.sweep([0, 1])).runs()]
        [0, 1]
        """
        runs: dict[str, Config] = {}
        try:
            for config in map(self.schema.resolve, self.points()):
                if lists_names(config) and (names := client_names(config)) is not None:
                    config = number_clients(config, names)
                if (known := runs.get(key := run_id(config))) is not None:
                    longest = max(known, config, key=lambda run: run.server.num_rounds)
                    config = replace(longest, record=known.record.with_all_of(asdict(config.record)))
                runs[key] = config
        except ConfigError as error:
            raise self.explain(error) from None
        return list(runs.values())

    def unused_keys(self, runs: Sequence[Config]) -> list[str]:
        """A message for each key that the file, an override or the sweep sets without effect on any of the runs."""
        given: Block = {}
        for block in ({key: [value] for key, value in self.values.items()}, *self.sweep):
            for key, values in block.items():
                given[key] = given.get(key, []) + values
        members = () if self.adversary is None else adversaries.ADVERSARIES[self.adversary]
        of_adversary = {key for member in members for key in member}
        given = {key: values for key, values in given.items() if key not in of_adversary}
        reasons = {key: self._unused(key, values, runs) for key, values in given.items()}
        if reasons.get("attack.kind"):  # which says why there is no attack
            reasons |= dict.fromkeys(reasons.keys() & {"attack.fraction", "attack.clients"}, "")
        if of_adversary and all(run.attack.kind == "none" for run in runs):
            reasons[adversaries.KEY] = NOT_MALICIOUS
        lines = [f"{key}: has no effect: {reason}" for key, reason in reasons.items() if reason]
        for block in self.sweep:
            repeated = [key for key, values in block.items() if len(set(map(repr, values))) < len(values)]
            lines += [f"sweep: {key} has a value twice" for key in repeated]
            ignored = [key for key, values in block.items() if key in NOT_IN_IDS and len(values) > 1]
            lines += [f"sweep: {key} changes no results, so each run is computed once" for key in ignored]
            rounds = {*block.get("server.num_rounds", ())} - {DEFAULT, *(run.server.num_rounds for run in runs)}
            lines += [f"sweep: server.num_rounds: {r} rounds are part of the longer runs" for r in sorted(rounds)]
        return lines

    def _unused(self, key: str, values: Sequence[Any], runs: Sequence[Config]) -> str:
        """Why the key has no effect; "" if it has one."""
        uses = lambda key: [run for run in runs if key in FIXED or key in dict(run.settings)]
        if not (users := uses(key)):
            section = key.rpartition(".")[0]
            is_named = section in self.named_sections and key not in self.overridden  # used by other presets
            of_other_kind = next((name for kind in KINDS.values() if uses(name := f"{kind.prefix}{key}")), None)
            return "" if is_named else f"no run uses {section}{did_you_mean(of_other_kind)}"
        runs = users
        if key == "engine.micro_batch":
            sizes = [value for value in values if isinstance(value, int)]
            largest = max(config.client.batch_size for config in runs)
            return f"the largest batch has {largest} examples" if sizes and min(sizes) > largest else ""
        field = self.schema.fields[key]
        changed = [value for value in values if (tuple(value) if isinstance(value, list) else value) != field.default]
        if not changed or not field.only_if or (key not in self.overridden and not self.overridden.isdisjoint(KINDS)):
            return ""
        if any(flatten(run)[key] != field.default and not unmet(field, run) for run in runs):
            return ""
        known = {unmet(field, run) for run in runs}
        reasons = [condition.reason for condition in field.only_if]
        return next((reason for reason in reasons if reason in known), reasons[-1])

    def check_claims(self) -> None:
        """Raises `ConfigError` if the function of `claims` does not exist."""
        if self.claims:
            find_plugin("report.claims", bundled.located_plugin(self.claims))

    def __repr__(self) -> str:
        number = len(self.runs())
        return f"<Experiment {self.name}: {number} run{'s' * (number != 1)}>"

    def _repr_markdown_(self) -> str:
        """The number of runs and what is swept, for notebooks."""
        lines = [f"Experiment {self.name}: {len(self.runs())} runs"]
        for block in self.sweep:
            rows = [f"| `{key}` | {', '.join(map(format_toml, values))} |" for key, values in block.items()]
            lines.append("\n".join(["| swept key | values |", "| --- | --- |", *rows]))
        return "\n\n".join(lines) + "\n"

    def dump(self) -> str:
        """The experiment as TOML with every key resolved; `parse` of it gives the same experiment."""
        kinds = tuple({key: values for key, values in block.items() if key in KINDS} for block in self.sweep)
        points = replace(self, sweep=kinds).points()
        names = dict.fromkeys(name for values in points for name in component_names(DEFAULTS | values))
        sections = {find(key, name).section for key, name in names}
        shown = {
            key: value
            for key, item in self.schema.fields.items()
            if (key in FIXED or item.section in sections) and (value := self.values.get(key, item.default)) is not None
        }
        if self.claims is not None:
            shown["report.claims"] = self.claims
        is_named = lambda key: key in FIXED or self.schema.fields[key].section in sections
        return to_toml(shown, [{key: block[key] for key in block if is_named(key)} for block in self.sweep])

    def digest(self) -> str:
        """Eight hexadecimal digits that change with any key of the runs."""
        return hashlib.sha256(replace(self, claims=None).dump().encode()).hexdigest()[:8]
