"""The page of a report in Chromium: heat map, curves, weights, table, keyboard, narrow screens, size."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fedsim import report
from fedsim.core.evaluate import PERCENTILES
from fedsim.report.html.page import write_page
from tests.report.browser import browser, show, until
from tests.report.pages import make_sweep, read_page
from tests.report.synthetic import make_folder, run

pytest.importorskip("vl_convert")
pytest.importorskip("selenium")
By = pytest.importorskip("selenium.webdriver.common.by").By
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
ActionChains = pytest.importorskip("selenium.webdriver").ActionChains

pytestmark = pytest.mark.slow
CELLS = """return [...document.querySelectorAll('#map .layer_1_marks text')].map(node => {
    const {row, column, selected} = node.__data__.datum;
    return [row, column, node.textContent, selected];
})"""
POINTS = """return [...document.querySelectorAll('#curves .layer_2_marks path')].map(node => {
    const {name, round, mean, lowest, highest} = node.__data__.datum;
    return [name, round, mean, lowest, highest];
})"""
TABLE = "return [...document.querySelectorAll('tr')].map(row => [...row.children].map(c => c.textContent))"


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    results = report.load(make_sweep(tmp_path_factory.mktemp("browser") / "a"))
    return write_page(results, results.folders[0])


@pytest.fixture(scope="module")
def document(path):
    return json.loads(read_page(path.read_text()))


@pytest.fixture
def page(driver, path):
    show(driver, path)
    yield path
    assert driver.get_log("browser") == []
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0


def heat_map(driver):
    """By row and column: the text."""
    return {(row, column): text for row, column, text, _ in driver.execute_script(CELLS)}


def selected(driver):
    return {(row, column) for row, column, _, is_selected in driver.execute_script(CELLS) if is_selected}


def choose(driver, name, value):
    """Chooses a value, and waits until the heat map has changed."""
    before = driver.execute_script(CELLS)
    driver.find_element(By.CSS_SELECTOR, f"#{name} option[value='{value}']").click()
    until(lambda: (after := driver.execute_script(CELLS)) and after != before)


def click(driver, element, key=None):
    actions = ActionChains(driver)
    actions = actions.key_down(key).click(element).key_up(key) if key else actions.click(element)
    actions.perform()


def cell(driver, row, column):
    find = "return [...document.querySelectorAll('#map .layer_1_marks text')].find(node => " + (
        "node.__data__.datum.row === arguments[0] && node.__data__.datum.column === arguments[1])"
    )
    return driver.execute_script(find, row, column)


def texts(driver, selector):
    return [text.text for text in driver.find_elements(By.CSS_SELECTOR, selector)]


def labels(driver):
    """The names of the columns and rows of the heat map, in their order."""
    return texts(driver, "#map .role-axis-label text")


def names(driver):
    """The legend of the curves."""
    return texts(driver, "#curves .role-legend-label text")


def find_settings(document, **values):
    return [entry for entry in document["settings"] if all(entry[key] == value for key, value in values.items())]


def test_it_opens_at_the_worst_threats_with_the_last_column_selected(driver, page, document):
    cells = heat_map(driver)
    assert {column for _, column in cells} == {"Clean", "20 %", "40 %"}
    for row in ("FedAvg", "ARFL, λ = 1 M"):
        for share in ("20 %", "40 %"):
            settings = find_settings(document, row=row, share=share)
            worst = min(entry["final"]["accuracy"]["mean"] for entry in settings)
            assert cells[row, share] == f"{worst:.1f}"
    assert cells["Median", "40 %"] == "†"  # all runs of one of its attacks
    assert cells["ARFL, λ = 10 M", "20 %"].endswith("*")  # of one threat, others have three
    assert selected(driver) == {(row, column) for row, column in cells if column == "40 %"}
    assert len(names(driver)) == 5
    assert document["facts"] in driver.find_element(By.TAG_NAME, "header").text


def test_metric_threat_and_share_are_chosen(driver, page, document):
    choose(driver, "threat", "all")
    choose(driver, "share", "20 %")
    columns = {column for _, column in heat_map(driver)}
    assert [name for name in labels(driver) if name in columns] == [
        "Clean",
        "IPM",
        "ALIE",
        "Sign flip",
        "Shuffling",
        "Worst",
    ]
    choose(driver, "metric", "loss")
    cells = heat_map(driver)
    for entry in find_settings(document, share="20 %"):
        assert cells[entry["row"], entry["threat"]] == f"{entry['final']['loss']['mean']:.3f}"
    choose(driver, "threat", "ALIE")
    assert {column for _, column in heat_map(driver)} == {"Clean", "ALIE"}
    choose(driver, "order", "as listed")
    assert labels(driver)[-3:] == ["FedAvg", "Median", "ARFL, λ = 1 M"]


def test_a_click_leads_to_curves_client_weights_and_the_command(driver, page, document):
    choose(driver, "threat", "ALIE")
    click(driver, cell(driver, "ARFL, λ = 1 M", "20 %"))
    until(lambda: selected(driver) == {("ARFL, λ = 1 M", "20 %")})
    (entry,) = find_settings(document, row="ARFL, λ = 1 M", threat="ALIE", share="20 %")
    mean, lowest, highest = entry["curves"]["accuracy"]
    until(lambda: names(driver) == ["ARFL, λ = 1 M"])
    expected = [list(point) for point in zip(entry["rounds"], mean, lowest, highest, strict=True)]
    assert [point[1:] for point in driver.execute_script(POINTS)] == expected
    until(lambda: len(driver.find_elements(By.CSS_SELECTOR, "#weights .layer_0_marks path")) == 3)
    assert driver.find_element(By.ID, "command").text == entry["command"]
    assert driver.find_element(By.ID, "toml").get_attribute("textContent") == entry["toml"]
    click(driver, cell(driver, "FedAvg", "40 %"), Keys.SHIFT)
    until(lambda: names(driver) == ["ARFL, λ = 1 M, ALIE 20 %", "FedAvg, ALIE 40 %"])
    click(driver, driver.find_elements(By.CSS_SELECTOR, "#map .role-axis-label text")[labels(driver).index("20 %")])
    until(lambda: {column for _, column in selected(driver)} == {"20 %"})
    assert set(names(driver)) == {"FedAvg", "Median", "ARFL, λ = 1 M"}
    driver.find_element(By.XPATH, "//select[@id='active']/option[starts-with(., 'FedAvg')]").click()
    until(lambda: "fedavg" in driver.find_element(By.ID, "command").text)
    assert not driver.find_element(By.ID, "weights").is_displayed()


def test_the_table_is_searched_sorted_and_used_by_keyboard(driver, page, document):
    head, *rows = driver.execute_script(TABLE)
    assert head[:4] == ["Rule", "Threat", "Share", "Diverged"]  # not what all settings share
    assert len(rows) == len(document["settings"])
    driver.find_element(By.XPATH, "//th/button[.='Test accuracy (%)']").click()
    at = head.index("Test accuracy (%)")
    numbers = [float(row[at].split("†")[0].split()[0]) for row in driver.execute_script(TABLE)[1:] if row[at][0] != "†"]
    assert numbers == sorted(numbers)
    assert driver.execute_script(TABLE)[-1][at] == "†"  # without a number: last
    driver.switch_to.active_element.send_keys(Keys.ENTER)  # the button keeps the focus
    assert driver.find_elements(By.CSS_SELECTOR, "th[aria-sort=descending]")
    driver.find_element(By.ID, "find").send_keys("arfl alie")
    found = driver.execute_script(TABLE)[1:]
    assert sorted(row[:3] for row in found) == [["ARFL, λ = 1 M", "ALIE", share] for share in ("20 %", "40 %")]
    press = lambda *keys: driver.switch_to.active_element.send_keys(*keys)
    focused = lambda: driver.switch_to.active_element.find_elements(By.CSS_SELECTOR, "th, td")[2].text
    press(Keys.TAB)
    while driver.switch_to.active_element.tag_name != "tr":
        press(Keys.TAB)
    first = focused()
    press(Keys.ARROW_DOWN)
    press(Keys.ENTER)
    until(lambda: names(driver) == ["ARFL, λ = 1 M"])
    assert focused() != first
    press(Keys.ARROW_UP)
    press(Keys.SHIFT, Keys.ENTER)
    until(lambda: len(names(driver)) == 2)
    assert focused() == first


def test_the_address_keeps_the_view_and_the_theme_changes(driver, page):
    choose(driver, "threat", "IPM")
    click(driver, cell(driver, "FedAvg", "20 %"))
    until(lambda: selected(driver) == {("FedAvg", "20 %")})
    seen, view = heat_map(driver), driver.execute_script("return location.hash")
    show(driver, page, view)
    assert (heat_map(driver), selected(driver)) == (seen, {("FedAvg", "20 %")})
    show(driver, page, "#nonsense")
    first = heat_map(driver)
    show(driver, page, '#{"threat":"Gone"}')
    assert heat_map(driver) == first
    show(driver, page, '#{"selected":[999],"active":999}')
    assert len(selected(driver)) == 5
    ground = lambda: driver.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    before = ground()
    driver.find_element(By.ID, "theme").click()
    assert ground() != before


def test_a_screen_of_400_pixels(driver, path):
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    show(driver, path)
    assert driver.execute_script("return document.documentElement.scrollWidth") == 400
    assert min(text.rect["y"] for text in driver.find_elements(By.CSS_SELECTOR, "#map .layer_1_marks text")) < 360
    assert driver.find_element(By.CSS_SELECTOR, "#curves svg").rect["height"] > 300
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_clients_outside_the_cohort_have_no_weight(driver, tmp_path, monkeypatch):
    """A line is interrupted; a weight between two rounds without one is a point. The weights' AUC has no curve."""
    folder = make_sweep(tmp_path / "a")
    results = report.load(folder)
    is_out = (pl.col("client_id") == 1) & (pl.col("round") == 10)
    clients = results.clients.with_columns(alpha=pl.when(~is_out).then("alpha"), weight="alpha")
    monkeypatch.setattr(report.Results, "clients", clients)
    show(driver, write_page(results, folder))
    click(driver, cell(driver, "ARFL, λ = 1 M", "20 %"))
    (point,) = until(lambda: driver.find_elements(By.CSS_SELECTOR, "#weights .layer_1_marks path"))
    weight = driver.execute_script("return arguments[0].__data__.datum", point)
    assert (weight["client"], weight["round"], weight["weight"]) == ("1", 60, pytest.approx(1, abs=1e-3))
    choose(driver, "metric", "weight_auc")
    assert heat_map(driver)["ARFL, λ = 1 M", "20 %"] == "100.0"
    assert "Test accuracy (%)" in texts(driver, "#curves .role-axis-title text")


def test_two_thousand_runs_of_a_hundred_evaluations(driver, tmp_path):
    """At most 1.5 MB; opening it takes the browser less than two seconds of computing, about half a second here."""
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
    of_clients = [f"accuracy_p{p}" for p in PERCENTILES]
    numbers = ("test_accuracy", "test_loss", "corrupted_weight", "backdoor_success", *of_clients)
    many = few.table.filter(evaluation=0).join(pl.DataFrame({"at": range(100)}), how="cross")
    noise = np.random.default_rng(0).random((len(numbers), len(many)))
    at = pl.col("at").cast(pl.Int32)
    table = many.with_columns(pl.Series(name, values) for name, values in zip(numbers, noise, strict=True))
    settings = [replace(setting, rounds=tuple(range(100))) for setting in few.settings]
    results = replace(few, settings=settings, table=table.with_columns(round=at, evaluation=at.cast(pl.Int64)))
    path = write_page(results, results.folders[0])
    assert path.stat().st_size < 1.5e6
    driver.get("about:blank")
    driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    show(driver, path)
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    driver.execute_cdp_cmd("Performance.disable", {})
    assert {metric["name"]: metric["value"] for metric in metrics}["TaskDuration"] < 2
    assert len(heat_map(driver)) == 4 * len(rules)
    assert "evaluations" in driver.find_element(By.ID, "band").text
    assert driver.get_log("browser") == []
