"""The configuration of a run: frozen dataclasses, with type, bounds, default and meaning of every fixed key.

What is named here, such as an aggregator, has settings of its own: those of its factory (`config.registry`), which
`Config.settings` holds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

from fedsim.core.settings import Traced
from fedsim.errors import ConfigError

MAX_SEED = 2**31 - 1
ROUNDING_ERROR = 1e-6  # of a share of the clients: 0.29 x 100 is 28.999999999999996

AtLeast0 = Annotated[int, Meta(ge=0, le=MAX_SEED)]
AtLeast1 = Annotated[int, Meta(ge=1, le=MAX_SEED)]
Positive = Annotated[float, Meta(ge=1e-30, le=1e30)]  # as float32 neither 0 nor infinite
NotNegative = Annotated[float, Meta(ge=0, le=1e30)]
Share = Annotated[float, Meta(ge=0, le=1)]
PositiveShare = Annotated[float, Meta(gt=0, le=1)]
InsideOne = Annotated[float, Meta(gt=0, lt=1)]
BelowOne = Annotated[float, Meta(ge=0, lt=1)]
Width = AtLeast1 | Literal["auto"]
Settings = tuple[tuple[str, Any], ...]  # (dotted key, value), in order of the keys


@dataclass(frozen=True)
class DataConfig:
    """The data set, and how it is divided among clients."""

    name: Annotated[str, "where the examples come from"] = "digits"
    deduplicate: Annotated[
        bool, "of equal inputs keep the first, training before test: no test input is trained on"
    ] = False
    num_clients: Annotated[AtLeast1, "number of clients N"] = 20
    partition: Annotated[str, "who gets which; natural: the data set's own clients, whose number is N"] = "iid"
    sample_fraction: Annotated[
        PositiveShare, "natural: share of the examples to keep, as whole clients drawn at random (LEAF's sampling)"
    ] = 1.0
    sample_clients: Annotated[AtLeast1 | None, "natural: number of clients to keep, drawn at random; default: all"] = (
        None
    )
    test_fraction: Annotated[
        InsideOne | None, "natural: split each client's examples anew; default: as they come, or 0.2 if unsplit"
    ] = None
    num_train: Annotated[AtLeast1 | None, "not natural: training examples to keep, drawn at random; default: all"] = (
        None
    )
    num_test: Annotated[AtLeast1 | None, "not natural: test examples to keep, drawn at random; default: all"] = None
    max_examples: Annotated[AtLeast1 | None, "natural: most training examples of a client, evenly spaced"] = None
    max_test_examples: Annotated[AtLeast1 | None, "natural: most test examples of a client, evenly spaced"] = None
    root_examples: Annotated[
        AtLeast0, "clean training examples that the server keeps for itself, drawn at random before the partition"
    ] = 0
    validation_fraction: Annotated[
        BelowOne, "share of the training examples kept, clean, to choose settings by; drawn before the partition"
    ] = 0.0
    seed: Annotated[AtLeast0, "of the splits, samples and partition; the same for all runs, whatever their seed"] = 0


@dataclass(frozen=True)
class CorruptionConfig:
    """What happens to the training data of some clients."""

    kind: Annotated[str, "what happens to the data of corrupted clients"] = "none"
    fraction: Annotated[Share, "share of the clients that is corrupted"] = 0.0
    rounding: Annotated[
        Literal["nearest", "down"], "of that share to whole clients; nearest: of a half to an even number"
    ] = "nearest"
    clients: Annotated[tuple[AtLeast0, ...], "ids of the corrupted clients (from 0), instead of a fraction"] = ()
    start: Annotated[
        AtLeast0, Traced(), "first round of corruption and attack; 0: the losses before the first round, too"
    ] = 0


@dataclass(frozen=True)
class AttackConfig:
    """What corrupted clients report, beyond their data."""

    kind: Annotated[str, "what corrupted clients report; none: the truth"] = "none"


@dataclass(frozen=True)
class ModelConfig:
    """The network."""

    name: Annotated[str, "the network"] = "mlp"


@dataclass(frozen=True)
class ClientConfig:
    """Local training."""

    algorithm: Annotated[str, "local training rule; fedavg: plain SGD"] = "fedavg"
    learning_rate: Annotated[Positive, Traced(), "of the clients' SGD"] = 0.1
    schedule: Annotated[str, "of that rate over the rounds"] = "constant"
    momentum: Annotated[BelowOne | None, Traced(), "of the clients' SGD, within a round; default: none"] = None
    weight_decay: Annotated[
        NotNegative | None, Traced(), "times the parameters, added to each gradient of the clients' SGD; default: none"
    ] = None
    epochs: Annotated[AtLeast1, "E, passes over its data that a client makes in a round"] = 1
    steps: Annotated[
        AtLeast1 | None,
        "steps that a client makes in a round, in place of epochs, which then have no effect; default: epochs",
    ] = None
    batch_size: Annotated[AtLeast1, "B, examples of a step; a last, partial batch is kept"] = 32
    clip: Annotated[Positive | None, "each element of a gradient is clipped to at most this; default: not"] = None
    augmentation: Annotated[
        Literal["none", "shift_flip"], "of training images; shift_flip: by up to a tenth, and left to right"
    ] = "none"
    failure_rate: Annotated[BelowOne, "probability that a client of the cohort does not answer"] = 0.0
    loss_at: Annotated[
        Literal["broadcast", "aggregated"],
        "model at which a client measures the loss it reports: the one it got, or the server's next (authors' program)",
    ] = "broadcast"


@dataclass(frozen=True)
class ServerConfig:
    """Rounds and aggregation."""

    aggregator: Annotated[str, "the rule"] = "arfl"
    pre_aggregators: Annotated[tuple[str, ...], "what stands before the rule, in this order"] = ()
    num_byzantine: Annotated[
        AtLeast0 | Literal["corrupted"] | None,
        "f for every rule and pre-aggregator that takes one; corrupted: the share that is, of a cohort, rounded up",
    ] = None
    optimizer: Annotated[str, "what steps on the aggregate"] = "sgd"
    learning_rate: Annotated[Positive, Traced(), "of the server's optimiser; 1 is plain averaging with sgd"] = 1.0
    schedule: Annotated[str, "of that rate over the rounds; it shares the section of its settings with clients'"] = (
        "constant"
    )
    cohort_size: Annotated[AtLeast1, "K, clients of a round"] = 10
    num_rounds: Annotated[AtLeast0, "R, rounds of a run"] = 100
    eval_every: Annotated[AtLeast1, "rounds between two evaluations; they are one compiled call"] = 5


@dataclass(frozen=True)
class EngineConfig:
    """How the work is laid out: speed, rounding, and the draws of dropout and augmentation (by micro-batch)."""

    client_width: Annotated[Width, "clients of a run that train in lockstep (1 to K), or auto"] = "auto"
    run_width: Annotated[Width, "runs of a program that train in lockstep, or auto"] = "auto"
    micro_batch: Annotated[Width, "examples of a batch whose gradient is computed at a time (1 to B), or auto"] = "auto"
    client_devices: Annotated[Width, "devices that share a run's cohort, or auto; the others take other runs"] = "auto"
    precision: Annotated[
        Literal["float32", "bfloat16"], "of the model's computations; parameters and sums are float32 always"
    ] = "float32"


@dataclass(frozen=True)
class RecordConfig:
    """What is written of each round."""

    losses: Annotated[bool, "record the clients' losses, and judge clients by them; false can save a pass"] = True
    clients: Annotated[Literal["all", "evaluated", "none"], "rounds whose clients are recorded"] = "all"
    models: Annotated[bool, "keep each run's model after its last round, as models/RUN.npz"] = False
    states: Annotated[bool, "keep what all runs end with, so that --extend can add rounds"] = False
    data: Annotated[bool, "keep each run's training data, corruption included, as data/RUN.npz"] = False


@dataclass(frozen=True)
class Config:
    """One run."""

    name: Annotated[Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")], "of the run folder"] = "fedsim"
    seed: Annotated[AtLeast0, "of the run: who is corrupted, the initial model, cohorts, batches"] = 0
    data: DataConfig = field(default_factory=DataConfig)
    corruption: CorruptionConfig = field(default_factory=CorruptionConfig)
    attack: AttackConfig = field(default_factory=AttackConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    client: ClientConfig = field(default_factory=ClientConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    record: RecordConfig = field(default_factory=RecordConfig)
    settings: Settings = ()  # of all factories that the run names, defaults included

    def section(self, name: str) -> dict[str, Any]:
        """The settings of one factory, without the section in their names."""
        return {key.rpartition(".")[2]: value for key, value in self.settings if key.rpartition(".")[0] == name}

    @property
    def has_corrupted(self) -> bool:
        """Whether anybody is corrupted."""
        return bool(self.corruption.clients) or self.corruption.fraction > 0


NAME_KEYS = (  # whose values are names that `config.registry` knows, or a user's own
    "data.name",
    "data.partition",
    "corruption.kind",
    "attack.kind",
    "model.name",
    "client.algorithm",
    "client.schedule",
    "server.aggregator",
    "server.pre_aggregators",
    "server.optimizer",
    "server.schedule",
)


def named(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, name) of every factory that a configuration, given by dotted key, names."""
    for key in NAME_KEYS:
        value = values.get(key, ())
        yield from ((key, name) for name in ([value] if isinstance(value, str) else value))


@dataclass(frozen=True)
class DataChoice:
    """All that decides which examples a run's clients have: runs with equal ones share a data set."""

    data: DataConfig
    settings: Settings


def check_clients(config: Config, num_clients: int) -> None:
    """Raises `ConfigError` where cohort or corrupted clients do not fit into `num_clients`."""
    if config.server.cohort_size > num_clients:
        raise ConfigError(
            f"server.cohort_size: {config.server.cohort_size} clients a round, but there are only {num_clients} "
            f"(data.num_clients); lower server.cohort_size"
        )
    if config.corruption.kind == "exclude" and num_corrupted(config, num_clients) == num_clients:
        raise ConfigError("corruption.kind: exclude leaves nobody; lower corruption.fraction")
    for client in config.corruption.clients:
        if client >= num_clients:
            raise ConfigError(f"corruption.clients: no client {client}; the ids are 0 to {num_clients - 1}")
    width, size = config.engine.client_width, config.server.cohort_size
    if width != "auto" and width > size:
        raise ConfigError(f"engine.client_width: {width} clients in lockstep, but a cohort is only {size}")


def num_corrupted(config: Config, num_clients: int) -> int:
    """How many of `num_clients` clients are corrupted."""
    share = config.corruption.fraction * num_clients
    whole = round(share) if config.corruption.rounding == "nearest" else int(share + ROUNDING_ERROR)
    return len(set(config.corruption.clients)) or whole
