"""Plug-ins by path and by module, and settings from annotations of factories, without running anything."""

import re
import sys
import textwrap

import pytest

import fedsim
from fedsim.config.components import factories, forget_plugins, settings_for, traced_settings
from fedsim.config.fields import settings_of
from fedsim.config.registry import find, find_plugin
from fedsim.config.resolve import schema
from fedsim.config.toml import parse, read
from fedsim.errors import ConfigError

RULES = """
from typing import Annotated, Literal

from fedsim import Bounds, Scalar, Traced
from fedsim.aggregators import fedavg

not_callable = 3


def my_rule(
    *,
    tau: Annotated[Scalar, Traced(gt=0), "clipping radius"] = 1.0,
    rounds: Annotated[int, Bounds(gt=0, lt=10), "how many"] = 4,
    most: Annotated[int | None, Traced(ge=1), "at most; default: any number"] = None,
    mode: Annotated[Literal["mean", "median"], "of what"] = "mean",
    names: Annotated[tuple[str, ...], "of layers"] = (),
    quiet: Annotated[bool, "says less"] = False,
    unmarked=7,
):
    return fedavg()


def other_rule(*, tau: Annotated[Scalar, Traced(ge=0, le=1), "a share"] = 0.5):
    return fedavg()


def without_settings():
    return fedavg()


def arfl(*, lam: Annotated[float, "of another kind"] = 1.0):
    return fedavg()


def server(*, speed: Annotated[float, "of the server"] = 1.0):
    return fedavg()


def clip(*, radius: Annotated[Scalar, Traced(gt=0), "the longest that an update may be"] = 1.0):
    return lambda report, key: report
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with the file rules.py; imported modules are unloaded after the test."""
    (tmp_path / "rules.py").write_text(RULES)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    schema.cache_clear()
    return tmp_path


def rule(name, *lines):
    return "\n".join([f"server.aggregator = '{name}'", *lines])


def test_a_setting_must_be_a_key_of_toml(folder):
    line = 'def greek(*, λ: Annotated[float, "weight"] = 1.0):\n    return fedavg()\n'
    (folder / "rules.py").write_text(RULES + line, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"greek\.λ: must be ASCII, since it is a key of TOML files; rename it"):
        parse(rule("rules.py:greek"))


def test_a_file_may_import_another_one_of_the_working_directory(folder):
    (folder / "of_rules.py").write_text("from rules import my_rule\n\ndef other():\n    return my_rule()\n")
    (run,) = parse(rule("of_rules.py:other")).runs()
    assert run.server.aggregator == "of_rules.py:other"


@pytest.mark.parametrize("place", ["rules.py", "rules", "./rules.py"])
def test_plugins_from_files_and_modules_have_sections(place, folder):
    experiment = parse(rule(f"{place}:my_rule", "my_rule.tau = 2", "my_rule.names = ['a', 'b']"))
    (run,) = experiment.runs()
    assert run.section("my_rule") == {
        "tau": 2.0,
        "rounds": 4,
        "most": None,
        "mode": "mean",
        "names": ("a", "b"),
        "quiet": False,
    }
    assert experiment.schema.headings["my_rule"] == f"Settings of the aggregator {place}:my_rule."
    assert "clipping radius" in experiment.schema.reference()
    assert parse(experiment.dump()).runs() == [run]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("my_rule.tau = 0", "my_rule.tau: must be a number > 0, got 0"),
        ("my_rule.rounds = 0", "my_rule.rounds: must be an integer > 0 and < 10, got 0"),
        ("my_rule.rounds = 10", "my_rule.rounds: must be an integer > 0 and < 10, got 10"),
        ("my_rule.rounds = 3000000000", "my_rule.rounds: must be an integer"),
        ("my_rule.most = 0", "my_rule.most: must be an integer >= 1, got 0"),
        ("my_rule.mode = 'mode'", 'my_rule.mode: must be "mean" or "median", got \'mode\''),
        ("my_rule.names = [1]", "my_rule.names: must be a list, each element text, got [1]"),
        ("my_rule.quiet = 1", "my_rule.quiet: must be true or false, got 1"),
        ("my_rule.unmarked = 1", "unknown key my_rule.unmarked; the settings of my_rule are: tau, rounds, "),
    ],
)
def test_errors_name_the_setting_and_its_bounds(line, message, folder):
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse(rule("rules.py:my_rule", line)).runs()


def test_a_plugin_without_annotated_parameters_says_that_it_has_no_settings(folder):
    with pytest.raises(ConfigError, match=r"key without_settings\.t; without_settings has no settings: annotate the"):
        fedsim.load({"server": {"aggregator": "rules.py:without_settings"}}, without_settings__t=1)


def test_numbers_marked_as_traced_are_program_inputs(folder):
    (run,) = parse(rule("rules.py:my_rule", "my_rule.most = 3")).runs()
    assert traced_settings(run) == {"my_rule.tau": 1.0, "my_rule.most": 3}
    (run,) = parse(rule("rules.py:my_rule")).runs()
    assert traced_settings(run) == {"my_rule.tau": 1.0}  # None is not traced


def test_sections_of_all_rules_of_a_sweep(folder):
    text = """
    my_rule.tau = 3.0
    [[sweep]]
    server.aggregator = ["arfl", "rules.py:my_rule", "rules.py:other_rule", "rules.py:without_settings", "rfa"]
    other_rule.tau = [0.1, 0.2]
    rfa.num_iters = [4, 8]
    centered_clipping.tau = [1.0, 2.0]  # of a rule that the sweep does not have
    """
    runs = parse(text).runs()
    shown = ("my_rule.tau", "other_rule.tau", "rfa.num_iters", "centered_clipping.tau")
    sections = [{key: value for key, value in run.settings if key in shown} for run in runs]
    of_other, of_rfa = [{"other_rule.tau": tau} for tau in (0.1, 0.2)], [{"rfa.num_iters": n} for n in (4, 8)]
    assert sections == [{}, {"my_rule.tau": 3.0}, *of_other, {}, *of_rfa]
    assert parse(parse(text).dump()).runs() == runs
    overridden = parse("", {"server.aggregator": fedsim.sweep(["arfl", "rules.py:my_rule"]), "my_rule.tau": 0.5}).runs()
    assert [run.section("my_rule").get("tau") for run in overridden] == [None, 0.5]
    assert (
        len(
            fedsim.load(
                {}, server__aggregator=fedsim.sweep(["rules.py:my_rule", "rfa"]), my_rule__tau=fedsim.sweep([1, 2])
            ).runs()
        )
        == 3
    )


def test_lists_of_names(folder):
    text = "server.pre_aggregators = ['rules.py:clip']\nclip.radius = 0.5"
    (run,) = parse(text).runs()
    assert (run.server.pre_aggregators, run.section("clip")) == (("rules.py:clip",), {"radius": 0.5})
    (run,) = parse("", {"server.pre_aggregators": ["rules.py:clip"], "clip.radius": 2}).runs()
    assert run.section("clip") == {"radius": 2.0}
    for one in (("server.pre_aggregators = 'rules.py:clip'",), ("", {"server.pre_aggregators": "rules.py:clip"})):
        assert parse(*one).runs()[0].server.pre_aggregators == ("rules.py:clip",)
    swept = parse("[[sweep]]\nserver.pre_aggregators = [[], ['rules.py:clip']]").runs()
    assert [run.server.pre_aggregators for run in swept] == [(), ("rules.py:clip",)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.py:my_rule", "server.aggregator: none.py: no such file"),
        ("no_such_module:my_rule", "no_such_module cannot be imported: ModuleNotFoundError"),
        ("rules.py:my_rul", "rules.py has no function my_rul; did you mean my_rule?"),
        ("rules:zzz", "rules has no function zzz"),
        ("rules.py:not_callable", "rules.py has no function not_callable, but a value of this name: int; write `def`"),
        ("rules.py:", "rules.py has no function "),
        (":my_rule", "cannot be imported"),
        ("math:sqrt", "math:sqrt: must be a function or class that is written in Python"),
        ("functools:partial", "functools:partial: must be a function or class that is written in Python"),
        ("time:time", "time:time: must be a function or class that is written in Python"),
        ("raising.py:my_rule", "raising.py cannot be imported: ZeroDivisionError: division by zero"),
        ("wrong.py:my_rule", "wrong.py cannot be imported: SyntaxError"),
        ("refusing.py:my_rule", "server.aggregator: its own message"),
        ("rules.py:arfl", "rules.py:arfl: arfl is the section of arfl already; give the function another name"),
        (
            "rules.py:server",
            "rules.py:server: server is a key or section of every configuration already; give the function another",
        ),
    ],
)
def test_unknown_plugins(name, message, folder):
    (folder / "raising.py").write_text("1 / 0")
    (folder / "wrong.py").write_text("def (")
    (folder / "refusing.py").write_text(
        "from fedsim.errors import ConfigError\nraise ConfigError('server.aggregator: its own message')"
    )
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse(rule(name)).runs()


def test_two_files_with_one_section_clash(folder):
    (folder / "others.py").write_text(RULES)
    with pytest.raises(
        ConfigError, match=r"my_rule is the section of rules\.py:my_rule already; give the function another name"
    ):
        parse("[[sweep]]\nserver.aggregator = ['rules.py:my_rule', 'others.py:my_rule']")


def test_a_file_that_failed_can_be_fixed(folder):
    """A module that raises is not kept half imported."""
    broken = folder / "fixed.py"
    broken.write_text("before = 1\nraise ValueError('not yet')")
    with pytest.raises(ConfigError, match="not yet"):
        parse(rule("fixed.py:my_rule"))
    broken.write_text(RULES)
    assert parse(rule("fixed.py:my_rule")).runs()


def test_plugins_next_to_the_configuration(folder, tmp_path_factory, monkeypatch):
    """From another working directory, whose files take precedence."""
    (folder / "run.toml").write_text(
        textwrap.dedent(
            """
            server = {aggregator = "rules.py:my_rule", pre_aggregators = ["rules.py:clip"]}
            [my_rule]
            tau = 2.0
            [[sweep]]
            server.aggregator = ["rules.py:my_rule", "rules.py:other_rule"]
            """
        )
    )
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    runs = read(folder / "run.toml").runs()
    assert [run.server.aggregator for run in runs] == [
        f"{folder}/rules.py:{name}" for name in ("my_rule", "other_rule")
    ]
    assert {run.server.pre_aggregators for run in runs} == {(f"{folder}/rules.py:clip",)}
    assert runs[0].section("my_rule")["tau"] == 2.0
    assert parse(read(folder / "run.toml").dump()).runs() == runs
    (elsewhere / "rules.py").write_text(RULES)
    assert read(folder / "run.toml").runs()[0].server.aggregator == "rules.py:my_rule"


def test_digests_change_with_the_file(folder):
    """The digest is that of the imported code. The file is read again with the next configuration, not before."""
    (config,) = parse(rule("rules.py:my_rule")).runs()
    before = find("server.aggregator", "rules.py:my_rule")
    (folder / "rules.py").write_text(RULES.replace("tau: Annotated", "theta: Annotated"))
    assert find("server.aggregator", "rules.py:my_rule") is before
    assert before in factories(config)
    assert find_plugin("report.claims", "rules.py:my_rule").digest != before.digest
    forget_plugins()
    after = find("server.aggregator", "rules.py:my_rule")
    assert after.digest != before.digest
    assert next(field.name for field in settings_of(after)) == "my_rule.theta"
    assert parse(rule("rules.py:my_rule") + "\n[my_rule]\ntheta = 2.0").runs()
    assert find("server.aggregator", "arfl").digest is None


def test_modules_that_changed_since_import_are_errors(folder):
    assert find("server.aggregator", "rules:my_rule").digest
    (folder / "rules.py").write_text(RULES + "\n")
    forget_plugins()
    with pytest.raises(ConfigError, match=r"rules\.py has changed since it was imported"):
        find("server.aggregator", "rules:my_rule")


def test_plugins_may_be_called_like_built_in_components_without_settings(folder):
    """Settings belong to a factory, not to whatever else has its name."""
    code = 'def median(*, beta: Annotated[float, "x"] = 1.0):\n    return my_rule()\n'
    (folder / "rules.py").write_text(RULES + "\n\n" + code)
    (config,) = parse(rule("rules.py:median")).runs()
    assert settings_for(config, find("server.aggregator", "median")) == {}
    assert settings_for(config, find("server.aggregator", "rules.py:median")) == {"beta": 1.0}
    assert settings_for(config, find("client.algorithm", "fedavg")) == {}


def test_two_versions_of_a_rule_without_settings(folder):
    (folder / "others.py").write_text(RULES)
    text = "[[sweep]]\nserver.aggregator = ['rules.py:without_settings', 'others.py:without_settings']"
    assert len(parse(text).runs()) == 2


def test_types_of_settings(folder):
    code = """
def listed(*, sizes: Annotated[list[int], "a list"] = [1, 2], most: Annotated[Scalar, Traced(gt=0)] = float("inf")):
    return fedavg()


def odd(*, table: Annotated[dict, "no setting"] = {}):
    return fedavg()


def hidden(*, tau: Annotated[NotThere, "x"] = 1.0):
    return fedavg()


def sweep(*, tau: Annotated[float, "x"] = 1.0):
    return fedavg()


def adversary(*, tau: Annotated[float, "x"] = 1.0):
    return fedavg()


bound = __import__("functools").partial(my_rule, rounds=5)
"""
    (folder / "rules.py").write_text("from __future__ import annotations\n" + RULES + code)
    experiment = parse(rule("rules.py:listed") + "\n[listed]\nsizes = [3]")
    (config,) = experiment.runs()
    assert config.section("listed") == {"sizes": (3,), "most": float("inf")}
    assert parse(experiment.dump()).runs() == [config]
    (config,) = parse(rule("rules.py:bound")).runs()
    assert config.section("bound")["rounds"] == 5
    for name, message in (
        ("odd", "odd.table: must be a number, text"),
        ("hidden", "its annotations cannot be read: name 'NotThere' is not defined"),
        ("sweep", "sweep is a key or section of every configuration already"),
        ("adversary", "adversary is a key or section of every configuration already"),
    ):
        with pytest.raises(ConfigError, match=message):
            parse(rule(f"rules.py:{name}"))


def test_values_that_the_sweep_replaces_may_be_invalid():
    experiment = parse("[data]\nnum_clients = 5\n[[sweep]]\nserver.cohort_size = [2, 5]")
    assert [config.server.cohort_size for config in experiment.runs()] == [2, 5]
