"""Checks of runs against their data set, the device's memory and their cohorts, before anything runs."""

import math
from collections.abc import Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from fedsim.config import components
from fedsim.config.clients import check_clients, num_corrupted, num_malicious
from fedsim.config.fields import FIXED, settings_of
from fedsim.config.roles import server_component
from fedsim.config.schema import Config, is_byzantine_count
from fedsim.config.sections import Role
from fedsim.core.corrupt import check_key_order
from fedsim.core.rule_trace import blank_report
from fedsim.core.types import FederatedDataset
from fedsim.datasets.portions import value_range
from fedsim.engine import build, factories, memory
from fedsim.engine.layout import Layout
from fedsim.engine.model import cached_by_program, check_targets, model_shapes, num_params
from fedsim.engine.padding import FORWARD_SHARE
from fedsim.engine.plugin_checks import check_plugins
from fedsim.errors import ConfigError

PRIVATE = {
    "client.algorithm": ("fedavg", "fedprox", "worker_momentum", "ditto"),
    "server.pre_aggregators": ("clipping", "zeroing", "quantization", "top_k"),
    "attack.kind": ("none", "fake_loss", "fake_counts", "sign_flip", "gaussian", "inf", "model_replacement"),
}
"""Components by which a client's data change its own update only."""
NEED_ALL_ROWS = {
    "arfl": "which keeps the loss of each client",
    "foolsgold": "which sums the updates of each client",
    "monna": "whose trusted client needs a row of its own",
}
"""Rules that identify clients by their ids, and why pre-aggregators must leave each a row."""


def check_group(configs: Sequence[Config], dataset: FederatedDataset, available: int) -> list[str]:
    """Checks the runs of a group; returns notes about runs that are possible but questionable.

    `available` are the free bytes of a device. Raises `ConfigError` if a run is not possible.
    """
    configs = components.distinct_runs(configs)
    for config in configs:
        check_corruption(config, dataset)
    check_settings(configs)
    check_inputs(configs[0], dataset)
    check_privacy(configs)
    check_model(configs[0], dataset, available)
    check_characters(configs[0], dataset)
    check_phrases(configs, dataset)
    check_plugins(configs, dataset)
    notes = [*check_limits(configs, dataset), *_note_few_clients(configs, dataset.num_clients)]
    notes += [*_note_trusted_client(configs, dataset), *_note_losses(configs[0], dataset)]
    if configs[0].model.name in ("logistic", "mlp") and dataset.spec.inputs == "text":
        name = configs[0].model.name
        notes.append(f"model.name: {name} takes characters as numbers; char_lstm and transformer embed them")
    return notes


def note_own_models(config: Config, dataset: FederatedDataset, layout: Layout) -> list[str]:
    """A remark if the algorithm trains models of the clients' own that are not evaluated, and why."""
    if not dataset.num_classes:
        reason = f"targets of {dataset.name} are numbers"
    elif not dataset.num_test_clients:
        reason = f"test examples of {dataset.name} belong to no clients"
    else:
        reason = "they stay on the host" if layout.buffer_examples else ""
    if not reason or not build.has_own_models(config):
        return []
    algorithm = config.client.algorithm
    return [f"client.algorithm: {algorithm} trains models of the clients' own, which are not measured: {reason}"]


def check_corruption(config: Config, dataset: FederatedDataset) -> None:
    """Raises `ConfigError` if the cohort or the corruption of the run does not fit the data set or the rounds."""
    check_clients(config, dataset.num_clients)
    start, num_rounds = config.corruption.start_round, config.server.num_rounds
    if start > num_rounds:
        raise ConfigError(
            f"corruption.start_round: must be at most server.num_rounds = {num_rounds}, got {start}; a run that is "
            "never corrupted has corruption.fraction = 0"
        )
    if 0 < (end := config.corruption.end_round) < start:
        raise ConfigError(f"corruption.end_round: must be at least corruption.start_round = {start}, got {end}")
    try:
        corruption = build.corruption(config)
        check_key_order(corruption)
        corruption.validate(dataset.spec)
    except ValueError as error:
        raise ConfigError(f"corruption.kind: {config.corruption.kind}: {error} ({dataset.name})") from None
    num_clients = dataset.num_clients
    for key, fraction, number in (
        ("corruption.fraction", config.corruption.fraction, num_corrupted(config, num_clients)),
        ("attack.fraction", config.attack.fraction, num_malicious(config, num_clients)),
    ):
        if fraction and number == 0:
            scale = 10 ** (2 - math.floor(math.log10(1 / num_clients)))  # three digits, rounded up
            least = math.ceil(scale / num_clients) / scale
            raise ConfigError(f"{key}: {fraction:g} rounds to 0 of {num_clients} clients; use at least {least:g}")


def check_settings(configs: Sequence[Config]) -> None:
    """Raises `ConfigError` if settings of an attack, a rule, a weighting or a pre-aggregator do not fit each other."""
    for config in {config.settings: config for config in configs}.values():
        for key, name in components.component_names(components.flatten(config)):
            if FIXED[key].role is Role.BRANCH:
                factories.build(config, key, name)


def check_inputs(config: Config, dataset: FederatedDataset) -> None:
    """Raises `ConfigError` if the algorithm lacks SGD, the rule root data, or augmentation images."""
    method = build.method(config)(build.hparams(config), jnp.int32(0))
    algorithm, optimizer = config.client.algorithm, config.client.optimizer
    if method.algorithm.needs_sgd and optimizer != "sgd":
        raise ConfigError(
            f'client.optimizer: must be "sgd" for {algorithm}, whose formulas hold for SGD only, got "{optimizer}"'
        )
    for key, name in (("server.aggregator", config.server.aggregator), ("server.weighting", config.server.weighting)):
        if name and dataset.root is None and factories.build(config, key, name).measure is not None:
            raise ConfigError(
                f"data.root_examples: must be at least 1 for {name}, which needs a clean root data set, got 0; use 100,"
                " for example"
            )
    if config.record.classes and not (dataset.num_classes and dataset.y_test.ndim == 1):
        raise ConfigError(f"record.classes: must be false for {dataset.name}, whose examples have no single class each")
    if config.record.local_steps and not (dataset.num_test_clients and dataset.num_classes):
        no_clients = 'test examples belong to no clients; use data.partition = "natural", or test_client_ids'
        reason = no_clients if dataset.num_classes else "targets are numbers, so that there is no accuracy"
        raise ConfigError(f"record.local_steps: must be 0 for {dataset.name}, whose {reason}")
    if config.server.patience and dataset.validation is None:
        raise ConfigError("server.patience: needs validation data; set data.validation_fraction = 0.1, for example")
    if config.client.augmentation != "none" and dataset.train.x.ndim != 4:
        raise ConfigError(
            f'client.augmentation: must be "none" for {dataset.name}, whose inputs of shape '
            f'{dataset.train.x.shape[1:]} are no images, got "{config.client.augmentation}"'
        )


def check_privacy(configs: Sequence[Config]) -> None:
    """Raises `ConfigError` if `norm_clipping.delta` is set, but no epsilon is known.

    `fedsim.runs.privacy` assumes that a client's data change no other client's update, and that all rounds draw from
    the same clients.
    """
    for config in configs:
        server, corruption, attack = config.server, config.corruption, config.attack.kind
        if config.section("norm_clipping").get("delta") is None:
            continue
        if server.weighting == "norm_clipping":
            raise ConfigError(
                "norm_clipping.delta: must be left out with server.weighting = norm_clipping, whose weights alone are "
                "used, without clipping and noise; no epsilon is known then"
            )
        names = {"client.algorithm": [config.client.algorithm], "server.pre_aggregators": server.pre_aggregators}
        names["attack.kind"] = [attack] if config.has_attack else []
        used = [(key, name) for key, known in PRIVATE.items() for name in names[key] if name not in known]
        changes = build.corruption(config)
        if "x" in changes.changed_fields and changes.change_inputs is None:
            used.append(("corruption.kind", corruption.kind))
        if config.has_attack and attack == "gaussian" and config.section(attack)["center"] == "mean":
            used.append(("gaussian.center", "mean"))
        if config.has_attack and attack == "model_replacement" and config.section(attack)["scale"] is None:
            used.append(("attack.kind", "model_replacement without a scale"))
        if used:
            raise ConfigError(
                f"norm_clipping.delta: must be left out with {' = '.join(used[0])}, by which a client's data may "
                "change more than its own update; no epsilon is known then"
            )
        if corruption.kind == "exclude" and (corruption.start_round or corruption.end_round):
            raise ConfigError(
                "norm_clipping.delta: must be left out if clients are excluded with corruption.start_round or "
                "corruption.end_round; the sampling rate of all rounds is not known then"
            )


def check_model(config: Config, dataset: FederatedDataset, available: int) -> None:
    """Raises `ConfigError` if the model does not fit the inputs, the labels, the classes or the memory."""
    needed = 2 * memory.tree_bytes(model_shapes(config, dataset).params)
    if not needed:
        raise ConfigError(f"model.name: {config.model.name} has no parameters, so nothing is trained")
    check_targets(config, dataset)
    if needed > available:
        raise ConfigError(
            f"model.name: {config.model.name} has {num_params(config, dataset):,} parameters, "
            f"{memory.gibibytes(needed)} with their gradient, and {memory.gibibytes(available)} are free; use a "
            f"smaller model ({dataset.num_classes:,} classes)"
        )


@cached_by_program()
def check_characters(config: Config, dataset: FederatedDataset) -> None:
    """Raises `ConfigError` if inputs of `char_lstm` or `transformer` are not among the tokens that it predicts.

    Others have no embedding: their one-hot rows are zero.
    """
    model, num_tokens = config.model.name, _num_tokens(config, dataset)
    if num_tokens is None:
        return
    for x in (dataset.train.x, dataset.x_test):
        low, high = value_range(np.asarray(x))
        if low < 0 or high >= num_tokens:
            remedy = f"set transformer.vocabulary_size = {high + 1}" if model == "transformer" else "use transformer"
            remedy = "number the tokens from 0" if low < 0 else f"{remedy} for other labels of texts"
            raise ConfigError(
                f"model.name: {model} predicts the next token, so inputs must be 0 to {num_tokens - 1}, got "
                f"{low if low < 0 else high}; {remedy} ({dataset.name})"
            )


def check_phrases(configs: Sequence[Config], dataset: FederatedDataset) -> None:
    """Raises `ConfigError` if a backdoor's phrase has tokens that the model does not embed."""
    num_tokens = _num_tokens(configs[0], dataset)
    largest = max(token for config in configs for token in (0, *config.section("backdoor").get("phrase", ())))
    if num_tokens is not None and largest >= num_tokens:
        raise ConfigError(f"backdoor.phrase: must be tokens from 0 to {num_tokens - 1}, got {largest}")


def _num_tokens(config: Config, dataset: FederatedDataset) -> int | None:
    """The number of tokens that the run's model embeds; None if it embeds none."""
    model = config.model.name
    if model not in ("char_lstm", "transformer"):
        return None
    return dict(config.settings).get(f"{model}.vocabulary_size") or dataset.spec.num_outputs


def check_limits(configs: Sequence[Config], dataset: FederatedDataset) -> list[str]:
    """Checks settings that count clients against the cohort, in the runs of a group.

    Returns notes about values for which a rule's authors guarantee nothing. Raises `ConfigError` if a value is beyond a
    limit that the rule requires, or if pre-aggregators merge the clients of a rule that identifies them by their ids.
    """
    config = configs[0]
    cohort_size = num_rows = config.server.cohort_size
    given = config.server.num_byzantine
    stages = [("server.pre_aggregators", name) for name in config.server.pre_aggregators]
    notes: dict[str, None] = {}
    weighting = [] if config.server.weighting is None else [("server.weighting", config.server.weighting)]
    attack = ("attack.kind", config.attack.kind)  # before pre-aggregators
    for key, name in [attack, *weighting, *stages, ("server.aggregator", config.server.aggregator)]:
        rows = f"the {num_rows} rows that pre-aggregators make of a cohort of {cohort_size}"
        counts = [field for field in settings_of(factories.find(key, name)) if field.limits]
        values = dict.fromkeys((field, dict(config.settings)[field.name]) for config in configs for field in counts)
        for field, value, limit in [(f, v, limit) for f, v in values if v is not None for limit in f.limits]:
            of_cohort = num_rows, "" if num_rows == cohort_size else rows
            by = f" (of server.num_byzantine = {given})" if is_byzantine_count(field.name) and given is not None else ""
            try:
                limit.check(f"{field.name}{by}", value, *(of_cohort if limit.of == "cohort" else [dataset.num_clients]))
            except ValueError as error:
                if limit.is_required:
                    raise ConfigError(str(error)) from None
                notes[str(error)] = None
        if key == "server.pre_aggregators":
            num_rows = _count_rows(config, dataset, name, num_rows)
    if (reason := NEED_ALL_ROWS.get(config.server.aggregator)) and num_rows < cohort_size:
        raise ConfigError(
            f"server.pre_aggregators: must not merge clients for {config.server.aggregator}, {reason}, "
            f"got {num_rows} rows of a cohort of {cohort_size}; leave out {', '.join(config.server.pre_aggregators)}"
        )
    return list(notes)


@cached_by_program(server_component)
def _count_rows(config: Config, dataset: FederatedDataset, name: str, num_rows: int) -> int:
    """The number of rows that a pre-aggregator makes of `num_rows`."""
    pre_aggregate = factories.build(config, "server.pre_aggregators", name)
    report = partial(blank_report, model_shapes(config, dataset), num_rows)
    return int(jax.eval_shape(lambda: pre_aggregate(report(), jax.random.key(0))).valid.size)


def _note_losses(config: Config, dataset: FederatedDataset) -> Iterator[str]:
    """A note if losses that the rule does not use take more time than training."""
    measured = dataset.train.num_examples.mean()
    trained = (config.client.steps or math.inf) * config.client.batch_size
    takes_longer = config.record.losses and FORWARD_SHARE * measured > trained
    if takes_longer and not build.trace_server(config, dataset).uses_losses:
        yield (
            f"record.losses: takes longer than training, since clients train on {trained:,} examples and measure the "
            f"losses of {measured:,.0f}; false leaves this out for rules that do not use losses"
        )


def _note_few_clients(configs: Sequence[Config], num_clients: int) -> Iterator[str]:
    """Notes about runs with fewer corrupted clients than kinds, or fewer that participate than a cohort has."""
    for config in configs:
        kind, number = config.corruption.kind, num_corrupted(config, num_clients)
        if 0 < number < len(factories.corruptions_of(config)):
            yield f"corruption.kind: {kind} has more kinds than there are corrupted clients ({number})"
        left = num_clients - number
        if kind == "exclude" and left < config.server.cohort_size:
            yield (
                f"corruption.kind: exclude leaves {left} of {num_clients} clients, fewer than the "
                f"{config.server.cohort_size} of a round (server.cohort_size)"
            )


def _note_trusted_client(configs: Sequence[Config], dataset: FederatedDataset) -> Iterator[str]:
    """Notes about runs in which MoNNA's trusted client is not in every cohort, or may be malicious."""
    for config in configs:
        server, client_id = config.server, config.section("monna").get("client_id")
        if client_id is None:
            continue
        if server.cohort_size < (num_clients := dataset.num_clients):
            percent = 100 * server.cohort_size / num_clients
            yield (
                f"monna.client_id: the trusted client is in {percent:.3g} % of the cohorts, and other rounds are "
                f"skipped; set server.cohort_size = {num_clients}"
            )
        listed = config.attack.clients if config.has_malicious_set else config.corruption.clients
        if config.has_attack and (client_id in listed or not listed):
            name = "".join(f" ({text})" for text in dataset.client_names[client_id : client_id + 1])
            yield f"monna.client_id: client {client_id}{name} may be malicious; list others in attack.clients"
