"""The configuration of a run: frozen dataclasses, with type, bounds, default and meaning of every key."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from msgspec import Meta

from fedsim.errors import ConfigError

MAX_SEED = 2**31 - 1

AtLeast0 = Annotated[int, Meta(ge=0, le=MAX_SEED)]
AtLeast1 = Annotated[int, Meta(ge=1, le=MAX_SEED)]
Positive = Annotated[float, Meta(ge=1e-30, le=1e30)]  # as float32 neither 0 nor infinite
Share = Annotated[float, Meta(ge=0, le=1)]
PositiveShare = Annotated[float, Meta(gt=0, le=1)]
InsideOne = Annotated[float, Meta(gt=0, lt=1)]
BelowOne = Annotated[float, Meta(ge=0, lt=1)]
Width = AtLeast1 | Literal["auto"]


@dataclass(frozen=True)
class DataConfig:
    """The data set, and how it is divided among clients."""

    name: Annotated[
        str, "digits, plane, cifar10, femnist, shakespeare, tfds, leaf or arrays (your own: the last two)"
    ] = "digits"
    path: Annotated[str, "leaf: a folder in LEAF's format, with train/ and test/; arrays: an .npz file"] = ""
    tfds_name: Annotated[str, "tfds: one of its image sets, such as mnist or emnist/letters"] = ""
    num_clients: Annotated[AtLeast1, "number of clients N"] = 20
    partition: Annotated[str, "iid, dirichlet, or natural (the data set's own clients, whose number is N)"] = "iid"
    dirichlet_alpha: Annotated[Positive, "concentration of the Dirichlet partition; smaller is less even"] = 0.5
    min_examples: Annotated[AtLeast1, "the least number of examples of a client in a Dirichlet partition"] = 10
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
    seed: Annotated[AtLeast0, "of the splits, samples and partition; the same for all runs, whatever their seed"] = 0


@dataclass(frozen=True)
class CorruptionConfig:
    """What happens to the training data of some clients."""

    kind: Annotated[str, "none, shuffling, flipping, noisy, shift, collusion or exclude"] = "none"
    fraction: Annotated[Share, "share of the clients that is corrupted"] = 0.0
    clients: Annotated[tuple[AtLeast0, ...], "ids of the corrupted clients (from 0), instead of a fraction"] = ()


@dataclass(frozen=True)
class AttackConfig:
    """What corrupted clients report, beyond their data."""

    kind: Annotated[str, "what corrupted clients report: none (the truth), fake_loss or sign_flip"] = "none"
    scale: Annotated[
        Positive | None, "fake_loss: report scale x loss (default 0.01); sign_flip: send -scale x update (default 1)"
    ] = None


@dataclass(frozen=True)
class ModelConfig:
    """The network."""

    name: Annotated[str, "network: mlp, cifar10_cnn, femnist_cnn or char_lstm"] = "mlp"
    hidden_sizes: Annotated[tuple[AtLeast1, ...], "mlp: units of each hidden layer"] = (64,)
    lstm_size: Annotated[AtLeast1, "char_lstm: units of each of the two LSTM layers"] = 256


@dataclass(frozen=True)
class ClientConfig:
    """Local training."""

    learning_rate: Annotated[Positive, "of the clients' SGD"] = 0.1
    epochs: Annotated[AtLeast1, "E, passes over its data that a client makes in a round"] = 1
    batch_size: Annotated[AtLeast1, "B, examples of a step; a last, partial batch is kept"] = 32
    clip: Annotated[Positive | None, "each element of a gradient is clipped to at most this; default: not"] = None
    augmentation: Annotated[
        Literal["none", "shift_flip"], "of training images; shift_flip: by up to a tenth, and left to right"
    ] = "none"
    dropout_rate: Annotated[BelowOne, "probability that a client of the cohort does not answer"] = 0.0


@dataclass(frozen=True)
class ServerConfig:
    """Rounds and aggregation."""

    aggregator: Annotated[str, "fedavg, rfa, multi_krum, cfl or arfl"] = "arfl"
    cohort_size: Annotated[AtLeast1, "K, clients of a round"] = 10
    num_rounds: Annotated[AtLeast0, "R, rounds of a run"] = 100
    eval_every: Annotated[AtLeast1, "rounds between two evaluations; they are one compiled call"] = 5
    learning_rate: Annotated[Positive, "of the server's SGD on the aggregate; 1 is plain averaging"] = 1.0
    momentum: Annotated[BelowOne, "of the server's SGD"] = 0.0


@dataclass(frozen=True)
class ArflConfig:
    """Aggregator arfl."""

    lam: Annotated[Positive, "lambda in units of M, the number of training examples of all clients"] = 1.0


@dataclass(frozen=True)
class RfaConfig:
    """Aggregator rfa."""

    num_iters: Annotated[AtLeast1, "steps of the Weiszfeld algorithm"] = 4
    eps: Annotated[Positive, "smoothing: distances are at least this"] = 1e-5


@dataclass(frozen=True)
class MultiKrumConfig:
    """Aggregator multi_krum."""

    num_byzantine: Annotated[AtLeast0 | None, "f, corrupted clients expected in a cohort; default: (K - 3) // 2"] = None
    num_selected: Annotated[AtLeast1 | None, "clients that are averaged; default: K - f"] = None


@dataclass(frozen=True)
class CflConfig:
    """Aggregator cfl."""

    threshold: Annotated[
        Annotated[float, Meta(ge=-1, le=1)], "split the cohort where the largest cosine across is below this"
    ] = 0.02


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
    arfl: ArflConfig = field(default_factory=ArflConfig)
    rfa: RfaConfig = field(default_factory=RfaConfig)
    multi_krum: MultiKrumConfig = field(default_factory=MultiKrumConfig)
    cfl: CflConfig = field(default_factory=CflConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    record: RecordConfig = field(default_factory=RecordConfig)


def check_clients(config: Config, num_clients: int) -> None:
    """Raises `ConfigError` where cohort or corrupted clients do not fit into `num_clients`."""
    if config.server.cohort_size > num_clients:
        raise ConfigError(
            f"server.cohort_size: {config.server.cohort_size} clients a round, but there are only {num_clients} "
            f"(data.num_clients); lower server.cohort_size"
        )
    for client in config.corruption.clients:
        if client >= num_clients:
            raise ConfigError(f"corruption.clients: no client {client}; the ids are 0 to {num_clients - 1}")
    width, size = config.engine.client_width, config.server.cohort_size
    if width != "auto" and width > size:
        raise ConfigError(f"engine.client_width: {width} clients in lockstep, but a cohort is only {size}")


def canonical(config: Config) -> Config:
    """The same run with every key that has no effect on it at its default, so that equal runs compare equal."""
    rule, default = config.server.aggregator, Config()
    for section in ("arfl", "rfa", "multi_krum", "cfl"):
        if section != rule:
            config = replace(config, **{section: getattr(default, section)})
    if config.data.partition != "dirichlet":
        unused = ("dirichlet_alpha", "min_examples")
        config = replace(config, data=replace(config.data, **{key: getattr(default.data, key) for key in unused}))
    corruption, attack = config.corruption, config.attack
    nobody = not corruption.clients and corruption.fraction == 0
    if nobody or (corruption.kind == "none" and attack.kind == "none"):
        return replace(config, corruption=default.corruption, attack=default.attack)
    if corruption.clients:
        corruption = replace(corruption, clients=tuple(sorted(set(corruption.clients))), fraction=0.0)
    if attack.kind == "none":
        attack = default.attack
    return replace(config, corruption=corruption, attack=attack)


def num_corrupted(config: Config, num_clients: int) -> int:
    """How many of `num_clients` clients are corrupted."""
    return len(set(config.corruption.clients)) or round(config.corruption.fraction * num_clients)
