"""The sections of a configuration: type, bounds, default, role and meaning of their keys.

A key has the role of its section (`schema.Config`) or, if it has one, its own. The components named here, such as an
aggregator, have settings: those of their factories. They have the role of the key that names the component.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Any, Literal

from msgspec import Meta

from fedsim.core.settings import MAX_INT, OnlyIf, Traced

NonNegativeInt = Annotated[int, Meta(ge=0, le=MAX_INT)]
PositiveInt = Annotated[int, Meta(ge=1, le=MAX_INT)]
PositiveFloat = Annotated[float, Meta(ge=1e-30, le=1e30)]  # as float32 neither 0 nor infinite
NonNegativeFloat = Annotated[float, Meta(ge=0, le=1e30)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
PositiveFraction = Annotated[float, Meta(gt=0, le=1)]
FractionBelowOne = Annotated[float, Meta(ge=0, lt=1)]
ProperFraction = Annotated[float, Meta(gt=0, lt=1)]
Count = PositiveInt | None
Width = PositiveInt | Literal["auto"]
SGD = OnlyIf("optimizer", "sgd")


class Role(Enum):
    """What a key reaches; `config/roles.py` derives from it when two runs are equal."""

    PROGRAM = "program"  # it shapes the compiled program
    BRANCH = "branch"  # it shapes a branch of a family's program
    DATA = "data"  # it determines the data set
    TRACED = "traced"  # it determines inputs of the program, as do numbers of other roles that are marked `Traced`
    RECORD = "record"  # it says what is written; the numbers are the same
    ENGINE = "engine"  # it says where and how wide rounds are computed; the numbers are the same up to rounding


@dataclass(frozen=True)
class DataConfig:
    """The data set, and its partition among clients."""

    name: Annotated[str, "data set"] = "digits"
    deduplicate: Annotated[
        bool, "keep one of equal inputs, a training example if there is one, so that no test input is trained on"
    ] = False
    long_tail: Annotated[
        PositiveFraction,
        "class k keeps this number to the power of k of its examples, for training and for testing, drawn at random",
    ] = 1.0
    num_clients: Annotated[PositiveInt, "number of clients N"] = 20
    partition: Annotated[
        str, "partition among clients; natural: the data's clients, which determine N; default if they are known"
    ] = "iid"
    sample_fraction: Annotated[
        PositiveFraction, "fraction of the examples to keep, as whole clients drawn at random (as LEAF does)"
    ] = 1.0
    sample_clients: Annotated[Count, "clients to keep, drawn at random; default: all"] = None
    test_fraction: Annotated[
        ProperFraction | None,
        "fraction of the examples for testing, drawn at random, from each natural client if there are any; a given "
        "split is replaced with natural clients only; default: the given split, or 0.2",
    ] = None
    num_train: Annotated[Count, "number of training examples to keep, drawn at random; default: all"] = None
    num_test: Annotated[Count, "number of test examples to keep, drawn at random; default: all"] = None
    max_examples: Annotated[Count, "maximum of training examples per client, evenly spaced; default: none"] = None
    max_test_examples: Annotated[Count, "maximum of test examples per client, evenly spaced; default: none"] = None
    root_examples: Annotated[
        NonNegativeInt,
        "number of clean training examples that the server holds (root data set), drawn before the partition",
    ] = 0
    validation_fraction: Annotated[
        FractionBelowOne,
        "fraction of the training examples held out, clean, for choosing settings; drawn before the partition",
    ] = 0.0
    placement: Annotated[
        Literal["auto", "device", "host"],
        Role.ENGINE,
        "where the training data are while rounds run; host: a device gets the examples of the next cohorts only; "
        "auto: host if all of them would take more than half of a device's memory. The results are the same",
    ] = "auto"
    seed: Annotated[
        NonNegativeInt | Literal["seed"],
        "seed of splits, samples and partition, which do not depend on the seed of a run; seed: that seed, so that "
        "each seed has a split of its own",
    ] = 0


@dataclass(frozen=True)
class CorruptionConfig:
    """Corrupted training data, and which clients have it."""

    kind: Annotated[
        str, 'corruption of the training data of corrupted clients; of several, "a+b", they have one each, in turn'
    ] = "none"
    fraction: Annotated[Fraction, Traced(), "fraction of the clients that are corrupted"] = 0.0
    rounding: Annotated[
        Literal["nearest", "down"], "rounding of that fraction to whole clients; nearest: halves to the even number"
    ] = "nearest"
    clients: Annotated[
        tuple[NonNegativeInt | str, ...],
        "the corrupted clients, by number (from 0) or name, instead of a fraction",
    ] = ()
    start_round: Annotated[
        NonNegativeInt, Traced(), "first round with corruption and attack; 0: also the losses before the first round"
    ] = 0
    end_round: Annotated[NonNegativeInt, Traced(), "last round with corruption and attack; 0: the run's last"] = 0

    @property
    def rounds(self) -> tuple[int, int]:
        """The first and the last round with corruption."""
        return self.start_round, self.end_round or MAX_INT


@dataclass(frozen=True)
class AttackConfig:
    """Forged reports, and which clients make them."""

    kind: Annotated[str, Role.BRANCH, "attack by which malicious clients forge their reports"] = "none"
    fraction: Annotated[
        Fraction | None,
        Traced(),
        "fraction of the clients that are malicious, a set of their own, which has clean data as far as there are "
        "enough clients; default: the corrupted clients",
    ] = None
    clients: Annotated[
        tuple[NonNegativeInt | str, ...],
        "the malicious clients, by number (from 0) or name, instead of a fraction",
    ] = ()


@dataclass(frozen=True)
class ModelConfig:
    """The model."""

    name: Annotated[str, "model"] = "mlp"


@dataclass(frozen=True)
class AdapterConfig:
    """Low-rank adapters (LoRA) of dense layers, which are trained in place of the model."""

    rank: Annotated[
        NonNegativeInt | None, "rank of the adapters of all dense layers; default: the model itself is trained"
    ] = None
    alpha: Annotated[PositiveFloat | None, "multiplies the low-rank term, divided by the rank; default: the rank"] = (
        None
    )
    factors: Annotated[
        Literal["both", "b"], "trained factors: a [in, rank] and b [rank, out], or b alone with a random a"
    ] = "both"
    whole: Annotated[tuple[str, ...], "arrays that are trained, too, as patterns of their names such as Dense_2/*"] = ()
    base: Annotated[
        str,
        "an .npz or .safetensors file of the model's arrays; default: random ones, if frozen the same for all seeds",
    ] = ""


@dataclass(frozen=True)
class ClientConfig:
    """Local training."""

    algorithm: Annotated[str, "local training algorithm; fedavg: that of FedAvg"] = "fedavg"
    optimizer: Annotated[str, "optimizer of local training, with a new state in each round"] = "sgd"
    learning_rate: Annotated[PositiveFloat, Traced(), "learning rate of the clients' optimizer"] = 0.1
    schedule: Annotated[str, "schedule of the clients' learning rate over the rounds"] = "constant"
    momentum: Annotated[
        FractionBelowOne | None, Traced(), SGD, "momentum of the clients' SGD within a round; default: none"
    ] = None
    weight_decay: Annotated[
        NonNegativeFloat | None,
        Traced(),
        SGD,
        "weight decay: multiple of the parameters added to each gradient of the clients' SGD; default: none",
    ] = None
    epochs: Annotated[PositiveInt, "E, local epochs per round"] = 1
    steps: Annotated[PositiveInt | None, "local steps per round, in place of epochs; default: epochs"] = None
    batch_size: Annotated[PositiveInt, "B, batch size; a last, partial batch is kept"] = 32
    clip: Annotated[
        PositiveFloat | None, "maximum absolute value of each gradient element (clipping); default: no clipping"
    ] = None
    augmentation: Annotated[
        Literal["none", "shift_flip"],
        "augmentation of training images; shift_flip: random shifts by up to a tenth and horizontal flips",
    ] = "none"
    dropout_rate: Annotated[FractionBelowOne, "probability that a client of the cohort does not answer"] = 0.0
    loss_at: Annotated[
        Literal["broadcast", "aggregated"],
        "model whose loss a client reports; broadcast: the model it received, "
        "aggregated: the server's next model (as in the authors' program)",
    ] = "broadcast"


@dataclass(frozen=True)
class ServerConfig:
    """Rounds and aggregation."""

    aggregator: Annotated[str, Role.BRANCH, "aggregation rule"] = "arfl"
    pre_aggregators: Annotated[
        tuple[str, ...], Role.BRANCH, "pre-aggregators, applied in this order before the rule"
    ] = ()
    weighting: Annotated[
        str | None,
        Role.BRANCH,
        "rule whose weights take the place of the clients' examples in the pre-aggregators and the rule, such as arfl; "
        "clients to which it gives no weight are left out; default: none",
    ] = None
    layerwise: Annotated[bool, Role.BRANCH, "apply the aggregation rule to each array of the model by itself"] = False
    num_byzantine: Annotated[
        NonNegativeInt | Literal["corrupted", "malicious"] | None,
        Role.TRACED,  # it reaches a program as a setting of rules, which has a role of its own
        "f, the number of Byzantine clients that every rule and pre-aggregator with an f assumes; corrupted: the "
        "fraction of a cohort that is corrupted or malicious, rounded up; malicious: that which is malicious; default: "
        "the default of each rule",
    ] = None
    optimizer: Annotated[str, "server optimizer, which applies the aggregate to the model"] = "sgd"
    learning_rate: Annotated[
        PositiveFloat, Traced(), "learning rate of the server optimizer; 1 with sgd is plain averaging"
    ] = 1.0
    schedule: Annotated[
        str, "schedule of the server's learning rate over the rounds; shares its section with the clients' schedule"
    ] = "constant"
    cohort_size: Annotated[PositiveInt, "K, clients per round"] = 10
    num_rounds: Annotated[NonNegativeInt, "R, rounds of a run"] = 100
    eval_every: Annotated[PositiveInt, "rounds between evaluations, which run in one compiled call"] = 5
    patience: Annotated[
        NonNegativeInt,
        "stop a run after so many evaluations without a better validation accuracy, or loss where there is none; "
        "0: do not",
    ] = 0
    stop_diverged: Annotated[
        bool, "stop a run whose test loss is not finite, or in which no client had a weight since the evaluation before"
    ] = False

    @property
    def may_stop(self) -> bool:
        """Whether a run may be stopped before its last round."""
        return self.patience > 0 or self.stop_diverged

    @property
    def max_rounds(self) -> int:
        """The most rounds of a chunk: between two evaluations."""
        return max(1, min(self.eval_every, self.num_rounds))


@dataclass(frozen=True)
class EngineConfig:
    """Execution: affects speed, rounding errors and (micro_batch) random draws in local steps and batch statistics."""

    client_width: Annotated[Width, "clients of a run that train in one vectorized step (1 to K), or auto"] = "auto"
    run_width: Annotated[Width, "runs of a group that train in one vectorized step, or auto"] = "auto"
    micro_batch: Annotated[Width, Role.PROGRAM, "examples per gradient computation (1 to B), or auto"] = "auto"
    client_devices: Annotated[
        Width, "devices among which the cohort of a run is divided, or auto; further devices train other runs"
    ] = "auto"
    precision: Annotated[
        Literal["float32", "bfloat16"],
        Role.PROGRAM,
        "precision of the model's computations; parameters and sums are float32",
    ] = "float32"


ADDED_RECORDS = "models", "data", "classes", "local_steps"  # what runs may record besides
CLIENT_RECORDS = "none", "evaluated", "all"  # values of record.clients, each with all that the one before it has


@dataclass(frozen=True)
class RecordConfig:
    """What a run writes."""

    losses: Annotated[
        bool,
        Role.PROGRAM,  # a client whose loss is not finite is invalid, if losses are recorded
        "record the clients' losses; false saves a forward pass for rules that do not use them",
    ] = True
    clients: Annotated[Literal["all", "evaluated", "none"], "rounds whose clients are recorded"] = "all"
    classes: Annotated[bool, "record the test accuracy of each class, as `class_accuracy/<name>`"] = False
    local_steps: Annotated[
        NonNegativeInt,
        "record `personal_accuracy`: of each client, on its own test examples, after so many local steps; 0: do not",
    ] = 0
    models: Annotated[bool, "save each run's final model, as models/<id>.npz"] = False
    final_states: Annotated[bool, "save the final state of all runs, from which more rounds continue"] = False
    data: Annotated[bool, "save each run's training data, with corruption, as data/<id>.npz"] = False

    def with_all_of(self, other: Mapping[str, Any]) -> "RecordConfig":
        """This, and what the section `other` records besides; with two numbers of local steps, its own."""
        own = {name: getattr(self, name) for name in (*ADDED_RECORDS, "final_states")}
        clients = max(self.clients, other["clients"], key=CLIENT_RECORDS.index)
        return replace(self, clients=clients, **{name: value or other.get(name, value) for name, value in own.items()})


@dataclass(frozen=True)
class ReportConfig:
    """What the report shows besides tables and figures. Of the whole experiment, so it is no part of a run."""

    claims: Annotated[
        str | None, "function from results to claims, as file.py:function; its verdicts are shown; default: none"
    ] = None
