"""Claims about accuracy and loss: over rounds, over the fraction of corrupted clients, over Dirichlet's alpha."""

import numpy as np

from fedsim.paper import convergence, fraction, heterogeneity
from tests.paper.run_folders import read, rule, run, verdicts


def test_convergence(tmp_path):
    ends = {
        "none": (80, 81, 79, 82),
        "shuffling": (40, 50, 45, 80),
        "flipping": (40, 50, 81, 80),
        "noisy": (70, 78, 79, 80),
    }
    runs = [
        run(rule(name, kind, 0.0 if kind == "none" else 0.5), [2, end / 2, end], loss=[4, 2, 100 / end])
        for kind, values in ends.items()
        for name, end in zip(convergence.RULES, values, strict=True)
    ]
    results = read(tmp_path, "convergence", runs)
    claims = convergence.claims(results)
    # Shuffling: accuracy, loss; flipping: both fail; clean: spread 3, slowest; noisy: spread 10, not the slowest; and
    # on clean data ARFL's loss is 100/82, the least.
    assert verdicts(claims) == ["holds", "holds", "fails", "fails", "holds", "holds", "fails", "fails", "fails"]
    (figure,) = convergence.figures(results).values()
    titles = [panel.get_title() for panel in figure.axes[:4]]
    assert titles == ["Clean", "Shuffling 50 %", "Flipping 50 %", "Noisy 50 %"]
    np.testing.assert_allclose(figure.axes[1].lines[3].get_ydata(), [2, 40, 80])
    np.testing.assert_allclose(figure.axes[5].lines[3].get_ydata(), [4, 2, 1.25])


def test_fraction(tmp_path):
    ends = {"arfl": {0.0: 72, 0.5: 68, 0.6: 66, 0.9: 30}, "fedavg": {0.0: 73, 0.5: 50, 0.6: 40, 0.9: 20}}
    keys = {"data.name": "cifar10"}
    runs = [
        run(rule(name, "shuffling" if share else "none", share, **keys), [10, end])
        for name, over in ends.items()
        for share, end in over.items()
    ]
    results = read(tmp_path, "fraction", runs)
    claims = fraction.claims(results)
    assert verdicts(claims) == ["holds", "fails", "holds", "holds"]
    assert [claim.measured for claim in claims] == [
        "4.00 points: 72.00 % to 68.00 %",
        "6.00 points: 72.00 % to 66.00 %",
        "36.00 points: 66.00 % to 30.00 %",
        "68.00 % and 50.00 %",
    ]
    assert claims[3].margin.text == "+18.00 points"
    (figure,) = fraction.figures(results).values()
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), [72, 68, 66, 30])


def test_fraction_of_femnist(tmp_path):
    shuffled = run(rule("arfl", "shuffling", 0.7), [2, 79.5])
    claims = fraction.femnist_claims(read(tmp_path, "fraction-femnist", [shuffled]))
    assert verdicts(claims) == ["holds"]
    assert claims[0].measured == "79.50 %"
    clean = run(rule("fedavg"), [2, 85.0])
    claims = fraction.femnist_claims(read(tmp_path, "fraction-femnist-small", [shuffled, clean]))
    assert [claim.measured for claim in claims] == ["79.50 %", "FedAvg, 0 %: 85.00 %"]


def test_heterogeneity(tmp_path):
    curves = {0.1: [10, 20, 30, 10, 40, 10], 1.0: [10, 30, 50, 55, 60, 55], 10.0: [10, 30, 50, 60, 70, 80]}
    keys = rule("arfl", "shuffling", 0.3) | {"data.partition": "dirichlet"}
    runs = [run(keys | {"dirichlet.alpha": alpha}, curve) for alpha, curve in curves.items()]
    results = read(tmp_path, "heterogeneity", runs)
    rising, calm = heterogeneity.claims(results)
    assert verdicts([rising, calm]) == ["holds", "holds"]
    assert rising.measured == "α = 0.1: 22.00 %, α = 1: 50.00 %, α = 10: 58.00 %"  # without round 0
    # In rounds 3 to 5: steps 30 and -30, 5 and -5, 10 and 10.
    assert calm.measured == "α = 0.1: 30.00, α = 1: 5.00, α = 10: 0.00"
    assert set(heterogeneity.figures(results)) == {"heterogeneity"}
