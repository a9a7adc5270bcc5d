"""Figures over swept numbers and of client weights, omitted elements, and files."""

import json
import re

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from fedsim import report
from fedsim.errors import RunFolderError
from fedsim.report import style, weights
from fedsim.report.lines import plot_over_rounds
from fedsim.report.metric import ACCURACY
from fedsim.runs.folder import RunFolder
from tests.report.synthetic import LAMS, RULES, SWEPT, final, make_folder, run


def test_figures_over_lambda(tmp_path):
    alphas = lambda run: [run["arfl.lam"], 1.0, 2.0]
    folder = make_folder(tmp_path / "a", SWEPT, alphas=alphas)
    drawn = report.figures(report.load(folder))
    assert {"accuracy_over_lam", "weights_over_lam", "client_weights"} <= set(drawn)
    assert "accuracy_over_fraction" not in drawn
    (panel,) = drawn["accuracy_over_lam"].axes
    fedavg, arfl = panel.lines
    np.testing.assert_allclose(arfl.get_xdata(), LAMS)
    expected = [final("arfl", 0.5, (0, 1), **{"arfl.lam": lam}).mean() for lam in LAMS]
    np.testing.assert_allclose(arfl.get_ydata(), expected)
    np.testing.assert_allclose(fedavg.get_ydata(), [final("fedavg", 0.5, (0, 1)).mean()] * 3)  # it has no lambda
    assert panel.get_xscale() == "log"
    assert panel.get_xlabel() == "λ (in units of M)"
    (panel,) = drawn["weights_over_lam"].axes
    corrupted, *benign = panel.lines
    np.testing.assert_allclose(corrupted.get_ydata(), 100 * np.asarray(LAMS) / 20, rtol=1e-6)
    assert corrupted.get_linestyle() == "--"
    assert [line.get_linestyle() for line in benign] == ["-", "-"]
    assert "seed 0" in panel.get_title()
    no_weights = make_folder(tmp_path / "b", [run("arfl", 0.5, 0, **{"arfl.lam": 9.0, "record.clients": "none"})])
    other_seed = make_folder(tmp_path / "c", [run("arfl", 0.5, 1, **{"arfl.lam": 9.0})], alphas=alphas)
    panel = weights.plot_weights_over_lam(report.load(folder, other_seed, no_weights)).axes[0]
    np.testing.assert_allclose(panel.lines[0].get_xdata(), LAMS)


def test_bands_are_named_by_what_they_are_of(tmp_path):
    """Three splits of one data set, three seeds of another: `accuracy` makes some equal, whose lines have no bands."""
    keys = [{"data.seed": split} for split in range(3)] + [{"data.name": "mnist", "seed": seed} for seed in range(3)]
    runs = [run("fedavg", 0.2, **of_run) for of_run in keys]
    spread = {"split": lambda run: run["data.seed"], "seed": lambda run: run["seed"]}
    spread["split or seed"] = lambda run: run["data.seed"] + run["seed"]
    for unit, number in spread.items():
        accuracy = lambda run, t, number=number: 0.3 + 0.01 * number(run)
        results = report.load(make_folder(tmp_path / unit, runs, accuracy))
        figure = plot_over_rounds(results, results.settings, ACCURACY)
        assert figure.get_suptitle().replace("\n", " ") == f"bands: lowest to highest {unit}"


def test_accuracy_over_fraction_begins_with_the_attack_alone(tmp_path):
    """Malicious clients of their own attack at each share of corrupted ones, also at none; two values are no figure."""
    attacks = ({}, {"attack.kind": "ipm", "attack.fraction": 0.1}, {"attack.kind": "alie", "attack.fraction": 0.1})
    runs = [run("fedavg", share, **attack) for share in (0.0, 0.2, 0.4) for attack in attacks]
    runs += [run("fedavg", 0.4, kind="flipping")]
    loss = lambda run: {"none": 0.0, "ipm": 0.2, "alie": 0.3}[run["attack.kind"]]
    accuracy = lambda run, t: 0.9 - run["corruption.fraction"] - loss(run)
    drawn = report.figures(report.load(make_folder(tmp_path / "a", runs, accuracy)))
    panels = {panel.get_title(): panel.lines[0] for panel in drawn["accuracy_over_fraction"].axes}
    starts = {"Shuffling": 90, "Shuffling + IPM by 10 %": 70, "Shuffling + ALIE by 10 %": 60}
    assert panels.keys() == starts.keys()
    for title, start in starts.items():
        np.testing.assert_allclose(panels[title].get_xdata(), [0, 20, 40])
        np.testing.assert_allclose(panels[title].get_ydata(), [start, start - 20, start - 40])


def test_accuracy_over_any_number(tmp_path):
    rates = [{"client.learning_rate": rate} for rate in (0.01, 0.1, 0.5)]
    runs = [run(rule, 0.5, seed, **rate) for rule in RULES for rate in rates for seed in (0, 1)]
    drawn = report.figures(report.load(make_folder(tmp_path / "a", runs)))
    (panel,) = drawn["accuracy_over_client-learning_rate"].axes
    assert len(panel.lines) == 3  # the key is on the axis, so that a rule is one line
    values = [final("rfa", 0.5, (0, 1), **rate).mean() for rate in rates]
    np.testing.assert_allclose(panel.lines[1].get_ydata(), values)


def test_titles_state_omitted_rows_panels_and_clients(tmp_path):
    runs = [run(rule, fraction / 50) for rule in RULES for fraction in range(1, style.MAX_PANELS + 19)]
    drawn = report.figures(report.load(make_folder(tmp_path / "a", runs)))
    assert drawn["accuracy"].get_suptitle() == f"{style.MAX_PANELS} of {style.MAX_PANELS + 18} panels"
    assert len(drawn["accuracy"].axes) == style.MAX_PANELS
    number = style.MAX_LINES + 5
    many = [run("arfl", 0.5, **{"arfl.lam": float(lam)}) for lam in range(1, number + 1)]
    num_clients = 2 * weights.MAX_CLIENTS + 10
    drawn = report.figures(report.load(make_folder(tmp_path / "b", many, alphas=lambda run: np.ones(num_clients))))
    assert drawn["accuracy"].get_suptitle() == f"{style.MAX_LINES} of {number} rows"
    lines = len(drawn["client_weights"].axes[0].lines)
    assert lines <= weights.MAX_CLIENTS
    panels, clients = drawn["client_weights"].get_suptitle().split("; ")
    assert panels == f"{style.MAX_PANELS} of {number} panels"
    assert clients == f"{lines} of {num_clients} clients"


def test_figures_are_written_as_png_and_pdf_in_one_style(tmp_path):
    import matplotlib as mpl

    folder = make_folder(tmp_path / "a", SWEPT, alphas=lambda run: [0.5, 0.5])
    with mpl.rc_context({"font.size": 33, "axes.facecolor": "red"}):
        drawn = report.figures(report.load(folder))
        assert mpl.rcParams["font.size"] == 33
    assert drawn["loss"].axes[0].title.get_fontsize() == style.STYLE["axes.titlesize"]
    assert drawn["loss"].axes[0].get_facecolor() == (1, 1, 1, 1)
    report.write(report.load(folder), folder)
    for name in drawn:
        assert (folder.path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (folder.path / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    before = (folder.path / "figures" / "loss.pdf").read_bytes()
    with style.context():
        folder.write_figure("loss", drawn["loss"])
    assert (folder.path / "figures" / "loss.pdf").read_bytes() == before  # no date


@pytest.mark.parametrize(("rule", "key"), [("arfl", "arfl.lam"), ("rfa", "client.learning_rate")])
@pytest.mark.parametrize("number", [7, 8, 12])
def test_many_values_of_an_ordered_key_have_a_scale_and_no_two_lines_are_alike(rule, key, number, tmp_path):
    """FedAvg is a line of its own; from eight values on, colors become brighter with the value."""
    values = [float(10 ** (x / 3)) for x in range(number)]
    runs = [run(rule, 0.5, **{key: value}) for value in reversed(values)] + [run("fedavg", 0.5)]
    results = report.load(make_folder(tmp_path / "a", runs))
    with style.context():
        figure = plot_over_rounds(results, results.settings, ACCURACY)
    drawn = figure.axes[0].lines
    assert len({(to_hex(line.get_color()), line.get_linestyle()) for line in drawn}) == number + 1
    legend = figure.legends[0]
    names = [text.get_text().replace("\n", "") for text in legend.get_texts()]
    lines = {name: line for name, line in zip(names, legend.get_lines(), strict=True) if "FedAvg" not in name}
    value_of = lambda name: float(re.search(r"= ?([\d.e+]+)", name)[1])
    brightness = [sum(to_rgb(lines[name].get_color())) for name in sorted(lines, key=value_of)]
    assert len(brightness) == number
    assert (number <= 7) or brightness == sorted(brightness)


def test_figures_of_an_earlier_report_are_removed(tmp_path, monkeypatch):
    results = report.load(make_folder(tmp_path / "a", SWEPT))
    out = RunFolder(tmp_path / "b")
    own = [out.path / name for name in ("figures/photo.png", "claims.md")]  # the user's
    (out.path / "figures").mkdir(parents=True)
    for path in own:
        path.touch()
    for names in (["accuracy", "loss"], ["loss"]):
        monkeypatch.setattr(report, "figures", lambda results, names=names: dict.fromkeys(names, Figure()))
        report.write(results, str(out.path))
        written = {path.name for path in (out.path / "figures").iterdir()}
        assert written == {f"{name}.{kind}" for name in names for kind in ("png", "pdf")} | {"photo.png"}
        report.write(results, out, has_figures=False)  # leaves figures as they are
        assert written == {path.name for path in (out.path / "figures").iterdir()}
    (out.path / ".report.json").write_text(json.dumps(["../a/groups/x.csv", "figures/../../a/x.png", "data.npz", 1]))
    (out.path / "data.npz").touch()
    with pytest.raises(RunFolderError, match=r"summary\.csv: is there, but of no earlier report; move it"):
        report.write(results, out)
    assert all(path.exists() for path in (*own, out.path / "data.npz"))


def test_only_clients_with_a_weight_at_every_lambda_are_drawn(tmp_path):
    alphas = lambda run: [1.0, 1.0, 1.0][: 2 if run["arfl.lam"] == 10 else 3]
    results = report.load(make_folder(tmp_path / "a", SWEPT, alphas=alphas))
    assert len(report.figures(results)["weights_over_lam"].axes[0].lines) == 2
