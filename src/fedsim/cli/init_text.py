"""The text of the configuration that `fedsim init` writes."""

from typing import TYPE_CHECKING, Any

from fedsim.errors import ConfigError

if TYPE_CHECKING:
    from fedsim.datasets.raw import RawDataset

NATURAL = "natural"
COHORT_SIZE = 10


def write_text(
    name: str,
    section: str,
    settings: dict[str, Any],
    clients: str,
    natural: int,
    suspect: str,
    raw: "RawDataset | None",
) -> str:
    """The configuration as TOML.

    `section` and `settings` are the data set and its settings, `clients` the number of clients or "natural", `natural`
    the number of the data's natural clients, and `raw` the examples, None for a data set that is known by its name.
    Raises `ConfigError` if `clients` is neither.
    """
    from fedsim.config.kinds import KINDS
    from fedsim.config.values import format_toml
    from fedsim.datasets.partition import is_single_label

    if clients != NATURAL and not (clients.isdecimal() and int(clients) > 0):
        raise ConfigError(f"--clients: must be an integer >= 1 or natural, got {clients}")
    clients = clients if clients == NATURAL else str(int(clients))  # 007 is no integer of TOML
    attacks = [kind for kind in KINDS["attack.kind"].built_in if kind not in KINDS["corruption.kind"].built_in]
    key = "attack.kind" if suspect in attacks else "corruption.kind"
    cohort_size = min(COHORT_SIZE, natural if clients == NATURAL else int(clients))
    partition = ['partition = "natural"  # the clients of the data']
    if clients != NATURAL:
        by_labels = raw is None or is_single_label(raw)
        kind = '"dirichlet"  # non-IID: clients differ in their labels; or iid' if by_labels else '"iid"  # or quantity'
        partition = [f"num_clients = {clients}", f"partition = {kind}"]
    if raw is not None and len(raw.y_test) == 0:
        partition.append("test_fraction = 0.2  # of the examples, drawn at random")
    values = [f"{key} = {format_toml(value)}" for key, value in settings.items()]
    section_lines = [f"[{section}]", *values, ""] if values else []
    models = {"text": '"char_lstm"', "image": '"femnist_cnn"  # two convolutions; or mlp, resnet18, one of your own'}
    model = ["[model]", f"name = {models[raw.inputs]}", ""] if raw is not None and raw.inputs in models else []
    lines = [
        "# Robust aggregation on your data. `fedsim config` prints every key with its meaning.",
        f"name = {format_toml(name)}",
        "",
        "[data]",
        f"name = {format_toml(section)}",
        *partition,
        "validation_fraction = 0.1  # held out for choosing settings: `fedsim report RUN --choose KEY`",
        "",
        *section_lines,
        *model,
        "[client]",
        "learning_rate = 0.1  # tune this first: --sweep.client.learning-rate 0.01 0.03 0.1 0.3",
        "epochs = 1  # local epochs per round",
        "batch_size = 32",
        "",
        "[server]",
        f"cohort_size = {cohort_size}  # clients per round",
        "num_rounds = 50",
        "eval_every = 5",
        "",
        "[[sweep]]  # clean data, to see the cost of each rule",
        'server.aggregator = ["fedavg", "median", "arfl"]  # `fedsim config server` has all',
        "seed = [0, 1, 2]",
    ]
    if suspect != "none":
        lines += [
            "",
            "[[sweep]]  # some clients corrupted",
            'server.aggregator = ["fedavg", "median", "arfl"]',
            f"{key} = {format_toml(suspect)}",
            "corruption.fraction = 0.3  # of the clients",
            "seed = [0, 1, 2]",
        ]
    return "\n".join(lines) + "\n"
