"""What the adapters' study asks, as claims with intervals over splits."""

from typing import Any

from fedsim import Claim
from fedsim.report.metric import ACCURACY, BACKDOOR, Metric
from fedsim.report.results import Results

ROBUST = ("median", "trimmed_mean", "multi_krum", "rfa")


def adapters(results: Results) -> list[Claim]:
    """ARFL and robust rules beside the mean, FedAvg."""

    def claims(text: str, rules: tuple[str, ...], above: bool, metric: Metric = ACCURACY, **values: Any) -> list[Claim]:
        mean = results.find(server__aggregator="fedavg", **values)
        leads = {
            rule: results.difference(results.find(server__aggregator=rule, **values), mean, metric) for rule in rules
        }
        sign = 1 if above else -1
        return [
            Claim(text.format(rule), None if lead is None else sign * lead, unit="points")
            for rule, lead in leads.items()
        ]

    wrong, clean = {"corruption__fraction": 0.4}, {"corruption__fraction": 0.0}
    characters, kinds = {"documentation__target": "character"}, {"documentation__target": "kind"}
    iid, separated = ({**kinds, "similarity__gamma": gamma} for gamma in (1.0, 0.0))
    every, no_f = ("arfl", *ROBUST), ("arfl", "median", "rfa")  # without an f, or f = 0 is the mean
    labels = {
        name: {"corruption__kind": kind, **wrong, **characters}
        for name, kind in {"shuffled": "shuffling", "all of one class": "flipping", "backdoored": "backdoor"}.items()
    }
    return [
        *claims("Next character, 40 % shuffled: {} is above the mean", every, True, **labels["shuffled"]),
        *claims("Next character, 40 % of one class: {} is above the mean", every, True, **labels["all of one class"]),
        *claims(
            "Next character, 40 % backdoored: {} lets fewer backdoors through than the mean",
            every,
            False,
            BACKDOOR,
            **labels["backdoored"],
        ),
        *claims("Kind of character, IID, 40 % moved by a class: {} is above the mean", every, True, **iid, **wrong),
        *claims("Kind of character, separated, clean: {} is below the mean", no_f, False, **separated, **clean),
        *claims(
            "Kind of character, separated, 40 % moved by a class: {} is below the mean",
            every,
            False,
            **separated,
            **wrong,
        ),
    ]
