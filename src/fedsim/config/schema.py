"""The configuration of a run, what it implies, and which of its keys have an effect only under a condition."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from msgspec import Meta

from fedsim.config import sections
from fedsim.config.sections import NonNegativeInt, Role
from fedsim.core.settings import OnlyIf, Traced

Settings = tuple[tuple[str, Any], ...]  # (dotted key, value), in order of the keys


@dataclass(frozen=True)
class Config:
    """One run."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$",
            description="of up to 100 letters, digits, _, . and -, not starting with . or -",
        ),
        Role.RECORD,
        "name, from which the run folder is named",
    ] = "fedsim"
    seed: Annotated[
        NonNegativeInt, Role.TRACED, Traced(), "seed of the run: corrupted clients, initial model, cohorts, batches"
    ] = 0
    adversary: Annotated[
        str | None,
        Role.RECORD,
        "fixed list of attacks, standard-1, each of which is run, in place of attack.kind; default: none",
    ] = None
    data: Annotated[sections.DataConfig, Role.DATA] = field(default_factory=sections.DataConfig)
    corruption: Annotated[sections.CorruptionConfig, Role.TRACED] = field(default_factory=sections.CorruptionConfig)
    attack: Annotated[sections.AttackConfig, Role.TRACED] = field(default_factory=sections.AttackConfig)
    model: Annotated[sections.ModelConfig, Role.PROGRAM] = field(default_factory=sections.ModelConfig)
    adapter: Annotated[sections.AdapterConfig, Role.PROGRAM] = field(default_factory=sections.AdapterConfig)
    client: Annotated[sections.ClientConfig, Role.PROGRAM] = field(default_factory=sections.ClientConfig)
    server: Annotated[sections.ServerConfig, Role.PROGRAM] = field(default_factory=sections.ServerConfig)
    engine: Annotated[sections.EngineConfig, Role.ENGINE] = field(default_factory=sections.EngineConfig)
    record: Annotated[sections.RecordConfig, Role.RECORD] = field(default_factory=sections.RecordConfig)
    report: Annotated[sections.ReportConfig, Role.RECORD] = field(default_factory=sections.ReportConfig)
    settings: Settings = ()
    """The settings of all components of the run, defaults included."""

    def section(self, name: str) -> dict[str, Any]:
        """The settings of one component, without the section in their names."""
        return {key.rpartition(".")[2]: value for key, value in self.settings if key.rpartition(".")[0] == name}

    @property
    def has_low_rank(self) -> bool:
        """Whether layers have adapters; at rank 0 only whole arrays are trained."""
        return bool(self.adapter.rank)

    @property
    def has_corrupted(self) -> bool:
        """Whether any clients are corrupted."""
        return bool(self.corruption.clients) or self.corruption.fraction > 0

    @property
    def has_malicious_set(self) -> bool:
        """Whether the malicious clients are a set of their own."""
        return bool(self.attack.clients) or self.attack.fraction is not None

    @property
    def has_malicious(self) -> bool:
        """Whether any clients that participate are malicious."""
        fraction, is_excluded = self.attack.fraction, self.corruption.kind == "exclude"
        by_corruption = self.has_corrupted and not is_excluded
        return bool(self.attack.clients) or (by_corruption if fraction is None else fraction > 0)

    @property
    def has_attack(self) -> bool:
        """Whether malicious clients forge their reports."""
        return self.attack.kind != "none" and self.has_malicious

    @property
    def has_corruption(self) -> bool:
        """Whether it matters which clients are corrupted."""
        is_attacked = self.has_attack and not self.has_malicious_set
        return self.has_corrupted and (self.corruption.kind != "none" or is_attacked)

    @property
    def has_corruption_or_attack(self) -> bool:
        """Whether clients have corrupted data or forge reports."""
        return self.has_corruption or self.has_attack

    @property
    def has_byzantine_count(self) -> bool:
        """Whether a rule or a pre-aggregator has a setting f."""
        return any(is_byzantine_count(key) for key, _ in self.settings)


def is_byzantine_count(key: str) -> bool:
    """Whether the key is the f of a rule or a pre-aggregator, the number of Byzantine clients that it assumes."""
    return key.endswith(".num_byzantine") and key != "server.num_byzantine"


NO_CORRUPTION = "there is no corruption or attack: set corruption.kind, and corruption.fraction or corruption.clients"
CORRUPTION = OnlyIf("has_corruption", reason=NO_CORRUPTION)
NOT_MALICIOUS = "no participating client is malicious: set attack.fraction, or corruption.fraction without exclude"
ATTACK = OnlyIf("has_attack", reason="there is no attack: set attack.kind")
FRACTION = OnlyIf("corruption.clients", (), "corruption.clients replaces it"), CORRUPTION
ADAPTERS = (OnlyIf("adapter.rank", None, "the model is trained itself: set adapter.rank", is_negated=True),)
LOW_RANK = (OnlyIf("has_low_rank", reason="no layer has an adapter: set adapter.rank"),)
NATURAL = OnlyIf("data.partition", "natural", 'data.partition is not "natural": leave it out', is_error=True)
SUBSAMPLE = replace(NATURAL, reason='data.partition is "natural": use data.max_examples', is_negated=True)
ONLY_IF = {
    "data.num_clients": (
        OnlyIf("data.partition", "natural", 'data.partition is "natural": the data set has its own', is_negated=True),
    ),
    "data.sample_fraction": (NATURAL,),
    "data.sample_clients": (NATURAL,),
    "data.max_examples": (NATURAL,),
    "data.max_test_examples": (NATURAL,),
    "data.num_train": (SUBSAMPLE,),
    "data.num_test": (SUBSAMPLE,),
    "corruption.kind": (OnlyIf("has_corrupted", reason="no clients are corrupted: set corruption.fraction"),),
    "corruption.fraction": FRACTION,
    "corruption.rounding": FRACTION,
    "corruption.clients": (CORRUPTION,),
    "corruption.start_round": (OnlyIf("has_corruption_or_attack", reason=NO_CORRUPTION),),
    "corruption.end_round": (OnlyIf("has_corruption_or_attack", reason=NO_CORRUPTION),),
    "attack.kind": (OnlyIf("has_malicious", reason=NOT_MALICIOUS),),
    "attack.fraction": (OnlyIf("attack.clients", (), "attack.clients replaces it"), ATTACK),
    "attack.clients": (ATTACK,),
    **dict.fromkeys(("adapter.alpha", "adapter.factors"), LOW_RANK),
    **dict.fromkeys(("adapter.whole", "adapter.base"), ADAPTERS),
    "client.epochs": (OnlyIf("client.steps", None, "client.steps replaces it"),),
    "server.num_byzantine": (OnlyIf("has_byzantine_count", reason="no rule or pre-aggregator takes it"),),
}
"""Keys that have an effect only if all these conditions are met, which name keys or properties of `Config`."""
