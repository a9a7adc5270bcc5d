"""The page of a report in Chromium: heat map, curves, keyboard, tables and files."""

import csv
import io
import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from fedsim import report
from fedsim.report.html import write_page
from fedsim.report.rows import row_names
from fedsim.report.settings import PERCENTILES
from fedsim.report.summary import as_csv, summary
from fedsim.report.worst import worst_tables
from tests.report.browser import browser, saved, show, until
from tests.report.pages import make_sweep
from tests.report.synthetic import make_folder, run

pytest.importorskip("plotly")
pytest.importorskip("selenium")
By = pytest.importorskip("selenium.webdriver.common.by").By
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys

TEXTS = "return [...document.querySelectorAll(arguments[0])].map(row => [...row.children].map(c => c.textContent))"
LINES = """const {data} = document.getElementById(arguments[0]) ?? {};
return (data ?? []).filter(line => !line.fill).map(line => ({x: [...line.x], y: [...line.y], name: line.name}))"""
BAND = "return document.getElementById('curves').data.filter(line => line.fill).map(line => [...line.y])"
CHOSEN = "return [...document.querySelectorAll('#map [aria-selected=true]')].map(c => [+c.dataset.r, +c.dataset.c])"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return report.load(make_sweep(tmp_path_factory.mktemp("browser") / "a"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def driver(folder):
    with browser(folder) as driver:
        yield driver


@pytest.fixture(scope="module")
def path(results):
    return write_page(results, results.folders[0])


@pytest.fixture
def page(driver, path):
    show(driver, path)
    yield path
    assert driver.get_log("browser") == []
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0


def select(driver, name, value):
    driver.find_element(By.CSS_SELECTOR, f"#{name} option[value='{value}']").click()


def heat_map(driver):
    return driver.execute_script(TEXTS, "#map tr")


def cell(driver, row, column):
    return driver.find_element(By.CSS_SELECTOR, f"#map [data-r='{row}'][data-c='{column}']")


def selected(driver):
    return driver.execute_script(CHOSEN)


def lines(driver, chart, number):
    """The lines of a chart, once it has `number` lines."""
    return until(lambda: len(curves := driver.execute_script(LINES, chart)) == number and curves)


def shown(value, digits):
    """A number as the page writes it."""
    return "†" if math.isnan(value) else f"{value:.{digits}f}"


def find_setting(results, row, **fields):
    (setting,) = (
        setting
        for setting, name in row_names(results.settings).items()
        if name == row and all(getattr(setting, key) == value for key, value in fields.items())
    )
    return setting


def mean(values):
    finite = values[np.isfinite(values)]
    return finite.mean() if len(finite) else math.nan


def test_the_heat_map_has_the_means_over_seeds(driver, page, results):
    select(driver, "held-fraction", 2)
    (head, *rows) = heat_map(driver)
    assert head == ["Rule with its settings", "Clean", "IPM", "ALIE", "Sign flip", "Shuffling"]
    assert [row[0] for row in rows] == ["FedAvg", "Median", "ARFL, λ = 0.1 M", "ARFL, λ = 1 M", "ARFL, λ = 10 M"]
    for name, *texts in rows:
        for attack, text in zip(("ipm", "alie", "sign_flip"), texts[1:4], strict=True):
            if name in ("FedAvg", "Median", "ARFL, λ = 1 M"):
                setting = find_setting(results, name, attack=attack, fraction=0.4)
                assert text == shown(100 * mean(setting.accuracy[:, -1]), 1)
            else:
                assert text == ""
        if name in ("FedAvg", "Median"):
            assert texts[0] == shown(100 * mean(find_setting(results, name, fraction=0.0).accuracy[:, -1]), 1)


def test_the_metric_may_be_a_mean_or_the_best(driver, page, results):
    setting = find_setting(results, "FedAvg", fraction=0.0)
    on_validation = setting.accuracy[np.arange(3), setting.validation_accuracy.argmax(axis=1)]
    expected = {
        "last": setting.accuracy[:, -3:].mean(axis=1),
        "best": setting.accuracy.max(axis=1),
        "validation": on_validation,
    }
    for at, runs in expected.items():
        select(driver, "at", at)
        if at == "last":
            driver.find_element(By.ID, "n").send_keys(Keys.CONTROL + "a", Keys.NULL, "3", Keys.TAB)
        (text,) = {row[1] for row in heat_map(driver) if row[0] == "FedAvg"}
        assert text == shown(100 * runs.mean(), 1)


def test_the_worst_over_attacks_is_that_of_the_tables(driver, page, results):
    select(driver, "columns", "fraction")
    assert driver.find_element(By.ID, "held-threat").get_attribute("value") == "worst"
    (head, *rows) = heat_map(driver)
    assert head[1:] == ["0 %", "20 %", "40 %"]
    (table,) = worst_tables(results)
    expected = {row.name: ["" if n is None else shown(n.mean, 1) for n in row.entries] for row in table.rows}
    for row in ("ARFL, λ = 0.1 M", "ARFL, λ = 10 M"):  # run with a single corruption instead of three attacks
        expected[row] = [text and f"{text}*" for text in expected[row]]
    assert {name: texts for name, *texts in rows} == expected
    assert expected["Median"][2] == "†"  # all of its runs have diverged, which is the worst
    cell(driver, 0, 2).click()
    assert "the worst of 3" in driver.find_element(By.ID, "status").text


def test_diverged_runs_are_marked_and_the_worst(driver, tmp_path):
    """One of two runs under ALIE has diverged with a finite accuracy, which is not the lowest."""
    value = {"ipm": 0.3, "alie": 0.5, "sign_flip": 0.4}
    runs = [
        run(rule, 0.2, 0, "none", **{"attack.kind": attack, "data.seed": split})
        for rule in ("arfl", "fedavg")
        for attack in value
        for split in (3, 5)
    ]
    lost = lambda run: (run["attack.kind"], run["data.seed"]) == ("alie", 3)
    accuracy = lambda run, t: value[run["attack.kind"]]
    results = report.load(make_folder(tmp_path / "a", runs, accuracy, lost, alphas=lambda run: [0.1, 0.5, 0.4]))
    show(driver, write_page(results, results.folders[0]))
    select(driver, "columns", "attack")
    (head, *rows) = heat_map(driver)
    assert head[1:] == ["IPM", "ALIE", "Sign flip"]
    assert rows == [[rule, "30.0", "50.0†", "40.0"] for rule in ("FedAvg", "ARFL")]
    select(driver, "columns", "")
    (table,) = worst_tables(results)
    assert heat_map(driver)[1:] == [[row.name, f"{row.entries[0].mean:.1f}†"] for row in table.rows]
    cell(driver, 1, 0).click()
    lines(driver, "clients", 3)
    notes = [note.text for note in driver.find_elements(By.CSS_SELECTOR, "#detail .note")]
    assert "Client weights, ARFL, ALIE 20 %, split 3." in notes
    assert driver.get_log("browser") == []


def test_rows_and_columns_may_be_any_swept_key(driver, page, results):
    select(driver, "rows", "lam")
    select(driver, "columns", "fraction")
    select(driver, "held-aggregator", 2)
    (_, *rows) = heat_map(driver)
    values = {lam: dict(zip((0.0, 0.2, 0.4), texts, strict=True)) for lam, *texts in rows}
    setting = find_setting(results, "ARFL, λ = 0.1 M", fraction=0.4)
    assert values["0.1"][0.4] == shown(100 * mean(setting.accuracy[:, -1]), 1) + "*"  # lambda 1 has three attacks
    select(driver, "held-aggregator", 0)  # FedAvg, which has no lambda
    (_, *rows) = heat_map(driver)
    assert len({tuple(texts) for _, *texts in rows}) == 1
    assert len(rows) == 3


def test_a_sweep_opens_at_its_keys_and_at_the_best_values(driver, tmp_path):
    """Rows are lambda, with the share in columns; the learning rate is held at the one with the best mean."""
    lams, rates = (0.01, 0.1, 1.0, 10.0), (0.1, 0.3)
    keys = [{"arfl.lam": lam, "client.learning_rate": rate} for lam in lams for rate in rates]
    runs = [run("arfl", share, seed, **key) for share in (0.1, 0.5) for key in keys for seed in (0, 1)]
    value = lambda run, t: 0.5 + run["client.learning_rate"] + 0.01 * lams.index(run["arfl.lam"])
    results = report.load(make_folder(tmp_path / "a", runs, value))
    show(driver, write_page(results, results.folders[0]))
    options = driver.execute_script("return [...document.querySelectorAll('#rows option')].map(o => o.value)")
    assert {"arfl.lam", "lam"} & set(options)
    (head, *rows) = heat_map(driver)
    assert len(rows) in (4, 8)  # lambda, or each combination
    assert head[1:] == ["10 %", "50 %"]
    select(driver, "rows", "lam")
    assert driver.find_element(By.ID, "held-client.learning_rate").get_attribute("value") == "1"
    assert [row[1] for row in heat_map(driver)[1:]] == ["80.0", "81.0", "82.0", "83.0"]
    assert "best mean" in driver.find_element(By.ID, "held-note").text


def test_a_sweep_of_one_key_over_scenarios_has_it_as_rows(driver, tmp_path):
    lams = (0.01, 0.1, 1.0, 10.0)
    kinds = (("none", 0.0), ("shuffling", 0.3), ("shuffling", 0.5))
    runs = [run("arfl", share, 0, kind, **{"arfl.lam": lam}) for lam in lams for kind, share in kinds]
    results = report.load(make_folder(tmp_path / "a", runs))
    show(driver, write_page(results, results.folders[0]))
    (head, *rows) = heat_map(driver)
    assert [row[0] for row in rows] == ["0.01", "0.1", "1", "10"]
    assert all(text for row in rows for text in row)
    assert head[1:] == ["0 %", "30 %", "50 %"]


def test_a_click_shows_curves_clients_command_and_configuration(driver, page, results):
    setting = find_setting(results, "ARFL, λ = 1 M", attack="alie", fraction=0.2)
    cell(driver, 3, 2).click()
    (line,) = lines(driver, "curves", 1)
    assert line["x"] == setting.rounds.tolist()
    assert line["y"] == pytest.approx((100 * setting.accuracy.mean(axis=0)).tolist(), abs=1e-4)
    (band,) = driver.execute_script(BAND)
    over = [*setting.accuracy.max(axis=0), *setting.accuracy.min(axis=0)[::-1]]
    assert band == pytest.approx([100 * value for value in over], abs=1e-4)
    clients = lines(driver, "clients", 3)
    assert sorted(line["y"][0] for line in clients) == pytest.approx([0.5, 3.5, 6], abs=1e-2)
    command = driver.find_element(By.ID, "command").text
    assert "--attack.kind alie" in command
    assert "--server.aggregator arfl" in command
    configuration = driver.find_element(By.ID, "configuration").get_attribute("textContent")
    assert 'kind = "alie"' in configuration
    driver.find_element(By.CSS_SELECTOR, "#map [data-r='0'][data-c='-1']").click()  # the whole row of FedAvg
    assert [line["name"] for line in lines(driver, "curves", 4)] == ["Clean", "IPM 20 %", "ALIE 20 %", "Sign flip 20 %"]


def test_the_keyboard_moves_and_chooses(driver, page):
    press = lambda *keys: driver.switch_to.active_element.send_keys(*keys)
    focused = lambda: driver.execute_script("const {r, c} = document.activeElement.dataset; return [+r, +c]")
    driver.find_element(By.CSS_SELECTOR, "#controls label:last-child select").send_keys(Keys.TAB)
    while driver.execute_script("return document.activeElement.dataset.r === undefined"):
        press(Keys.TAB)
    assert focused() == [0, 0]
    press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    press(Keys.ARROW_RIGHT)
    assert focused() == [1, 2]
    assert "Median, ALIE" in driver.find_element(By.ID, "status").text
    press(Keys.ENTER)
    assert (selected(driver), focused()) == ([[1, 2]], [1, 2])
    assert len(lines(driver, "curves", 1)) == 1
    press(Keys.ARROW_LEFT)
    press(Keys.SHIFT, Keys.ENTER)
    assert selected(driver) == [[1, 1], [1, 2]]
    assert len(lines(driver, "curves", 2)) == 2
    press(Keys.HOME)
    press(Keys.ARROW_LEFT)
    assert focused() == [1, -1]
    press(Keys.ESCAPE)
    assert selected(driver) == []


def test_tables_sort_and_are_saved_as_python_writes_them(driver, page, results, folder):
    expected = as_csv(summary(results))
    save = lambda: (driver.find_element(By.ID, "save-table").click(), saved(folder, "made-summary.csv"))[1]
    assert save() == expected
    rows = list(csv.DictReader(io.StringIO(expected)))
    assert driver.execute_script(TEXTS, "#summary tbody tr") == [list(row.values()) for row in rows]
    header = lambda: driver.find_element(By.XPATH, "//table[@id='summary']//button[text()='final_accuracy_mean']")
    for is_descending in (False, True):
        header().click()
        numbers = [row for row in rows if row["final_accuracy_mean"]]
        numbers.sort(key=lambda row: float(row["final_accuracy_mean"]), reverse=is_descending)
        sorted_rows = numbers + [row for row in rows if not row["final_accuracy_mean"]]
        assert list(csv.DictReader(io.StringIO(save()))) == sorted_rows
        assert driver.execute_script(TEXTS, "#summary tbody tr") == [list(row.values()) for row in sorted_rows]
    driver.find_element(By.ID, "search").send_keys("alie")
    assert all(row["attack"] == "alie" for row in csv.DictReader(io.StringIO(save())))
    driver.find_element(By.CSS_SELECTOR, "#summary tbody tr").click()
    assert len(lines(driver, "curves", 1)) == 1


def test_figures_are_saved_as_svg(driver, page, folder):
    driver.find_element(By.ID, "save-map").click()
    texts = [node.text for node in ET.fromstring(saved(folder, "made-accuracy-row-threat.svg")).iter() if node.text]
    shown_texts = [text for row in heat_map(driver) for text in row[1:] if text]
    assert set(shown_texts) <= set(texts)
    driver.find_element(By.ID, "save-map-csv").click()
    rows = list(csv.reader(io.StringIO(saved(folder, "made-accuracy-row-threat.csv"))))
    assert [[f"{float(v):.1f}" if v else "" for v in row[1:]] for row in rows[1:]] == [
        row[1:] for row in heat_map(driver)[1:]
    ]
    cell(driver, 0, 0).click()
    lines(driver, "curves", 1)
    driver.find_element(By.ID, "save-curves").click()
    root = ET.fromstring(saved(folder, "FedAvg-Clean-accuracy.svg"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert any(node.get("class") == "js-line" for node in root.iter())


def test_the_address_keeps_the_view_and_colors_follow_the_selection(driver, page):
    select(driver, "columns", "fraction")
    cell(driver, 1, 1).click()
    seen, view = heat_map(driver), driver.execute_script("return location.hash")
    show(driver, page, view)
    assert heat_map(driver) == seen
    assert selected(driver) == [[1, 1]]
    show(driver, page, "#nonsense")
    ground = lambda: driver.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    before = ground()
    driver.find_element(By.ID, "theme").click()
    assert ground() != before


def test_two_thousand_runs_of_a_hundred_evaluations(driver, tmp_path):
    attacks = ("ipm", "alie", "sign_flip", "mimic", "gaussian")
    rules = ("arfl", "fedavg", "median", "rfa", "cfl", "krum", "meamed", "multi_krum", "trimmed_mean", "zeno")
    runs = [
        run(rule, fraction, seed, "none", **{"attack.kind": attack})
        for rule in rules
        for attack in attacks
        for fraction in (0.1, 0.2, 0.3, 0.4)
        for seed in range(10)
    ]
    few = report.load(make_folder(tmp_path / "a", runs))
    noise = np.random.default_rng(0)
    fields = ("accuracy", "loss", "corrupted_weight", "backdoor_success", *PERCENTILES)
    longer = lambda setting: (
        {name: noise.random((len(setting.seeds), 100)) for name in fields}
        | {"rounds": np.arange(100), "diverged": np.zeros((len(setting.seeds), 100), bool)}
    )
    results = replace(few, settings=[replace(setting, **longer(setting)) for setting in few.settings])
    assert sum(len(setting.runs) for setting in results.settings) == 2000
    path = write_page(results, results.folders[0])
    assert path.stat().st_size < 25e6
    show(driver, path)
    assert len(heat_map(driver)) == 1 + len(rules)
    cell(driver, 0, 0).click()
    assert len(lines(driver, "curves", 1)[0]["x"]) == 100
    assert driver.get_log("browser") == []
