"""What the authors' program does otherwise, in points of test accuracy: program minus text (docs/fidelity.md)."""

from fedsim import Claim
from fedsim.report.claims import format_mean
from fedsim.report.names import aggregator_name, format_values, join, scenario_name
from fedsim.report.results import Results

VALUES = {  # of the text, or fedsim's where it gives none; and of the program
    "client.loss_at": ("broadcast", "aggregated"),
    "corruption.rounding": ("nearest", "down"),
    "multi_krum.num_byzantine": (5, 6),
    "client.batch_size": (64, 32),
    "noisy.std": (0.7, 0.0),
    "char_lstm.forget_bias": (0.0, 1.0),
    "char_lstm.dropout_at": ("inputs", "outputs"),
    "noisy.text_noise": ("permute", "replace"),
}
DRAW = ("data.seed", "seed")


def differences(results: Results) -> list[Claim]:
    """Each value of the program in place of the text's, all else equal: numbers that decide nothing."""
    claims = []
    for key, (text, program) in VALUES.items():
        for setting in results.settings:
            run = results.runs[setting.runs[0]]
            same = {name: value for name, value in run.items() if name not in DRAW}
            reference = results.find(**same | {key: text}) if run.get(key) == program else None
            if (numbers := results.difference(setting, reference)) is None:
                continue
            others = tuple((name, of[1]) for name, of in VALUES.items() if name != key and run.get(name) == of[1])
            lam = "" if setting.lam is None else f"lambda = {setting.lam:g} M"
            rule = join(aggregator_name(setting.aggregator), lam, format_values(others))
            threat = setting.scenario.threat._replace(values=())
            scenario = scenario_name(setting.scenario._replace(threat=threat, data_values=()))
            title = f"{key} = {program}, not {text}: {rule}, {scenario}"
            claims.append(Claim(title, measured=format_mean(numbers, "+")))
    return claims
