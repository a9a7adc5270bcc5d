"""Limits on settings that are numbers of clients: values that are refused, and messages that state the limit."""

import re

import jax
import numpy as np
import pytest

import fedsim
from fedsim.aggregators import bucketing, bulyan, dnc, fedavg, multi_krum, nnm, trimmed_mean
from fedsim.cli.main import main
from fedsim.config.fields import settings_of
from fedsim.config.registry import built_in_factories
from fedsim.config.toml import parse
from fedsim.engine import make_plan
from fedsim.errors import ConfigError
from fedsim.testing import tiny

PLANE = """
name = "limits"
data = {name = "separable_2d", num_clients = 12, num_train = 60, num_test = 20}
model.name = "mlp"
"""
LIMITED = [
    pytest.param(limit, id=f"{field.name} {limit.condition}")
    for factory in built_in_factories()
    for field in settings_of(factory)
    for limit in field.limits
]


def is_refused(limit, value, num_rows):
    try:
        limit.check("f", value, num_rows)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("limit", LIMITED)
def test_the_largest_number_is_the_last_that_meets_the_condition(limit):
    program = re.sub(r"(\d) ([a-z])", r"\1 * \2", limit.condition)
    (letter,) = set(re.findall(r"[a-z]\w*", program))
    for k in range(1, 30):
        meet = [value for value in range(40) if eval(program, {letter: value, "K": k, "N": k})]
        assert max(limit.largest(k), -1) == max(meet, default=-1)
        refused = [value for value in range(40) if is_refused(limit, value, k)]
        assert refused == list(range(max(meet, default=0) + 1, 40))


def test_every_number_of_corrupted_clients_has_a_limit():
    names = {field.name for factory in built_in_factories() for field in settings_of(factory)}
    limited = {case.id.partition(" ")[0] for case in LIMITED}
    assert limited >= {name for name in names if name.endswith(".num_byzantine")}
    assert limited >= {"multi_krum.num_selected", "bucketing.size"}


def test_a_number_above_its_limit_is_refused_wherever_it_stands_in_a_sweep():
    text = PLANE + 'server.aggregator = "trimmed_mean"\n[[sweep]]\ntrimmed_mean.num_byzantine = [0, 4, 6]'
    with pytest.raises(ConfigError, match=r"^trimmed_mean\.num_byzantine: .*at most 4 .*got 6$"):
        make_plan(parse(text))


def test_a_rule_counts_the_rows_that_pre_aggregators_leave():
    text = PLANE + 'server = {aggregator = "trimmed_mean", pre_aggregators = ["nnm", "bucketing"]}\n'
    make_plan(parse(text + "trimmed_mean.num_byzantine = 2\nnnm.num_byzantine = 4"))
    message = r"^trimmed_mean\.num_byzantine: .* 5 rows .* cohort of 10 .*got 3$"
    with pytest.raises(ConfigError, match=message):
        make_plan(parse(text + "trimmed_mean.num_byzantine = 3"))
    with pytest.raises(ConfigError, match=r"^trimmed_mean\.num_byzantine: .* 2 rows .* cohort of 10 .*got 1$"):
        make_plan(parse(text + "trimmed_mean.num_byzantine = 1\n[[sweep]]\nbucketing.size = [2, 5]"))
    with pytest.raises(ConfigError, match=r"^bucketing\.size: .*at most 10 .*got 11$"):
        make_plan(parse(text + "bucketing.size = 11"))
    with pytest.raises(ConfigError, match=r"^server\.pre_aggregators: .* monna, .* 5 rows .* cohort of 10; leave out"):
        make_plan(parse(text.replace("trimmed_mean", "monna")))
    with pytest.raises(ConfigError, match=r"not merge clients for arfl, which keeps the loss of each client, got 5"):
        make_plan(parse(text.replace("trimmed_mean", "arfl")))


def test_attackers_copy_one_of_the_clients():
    text = PLANE + "attack = {kind = 'mimic', fraction = 0.25}\nmimic = {target = 'fixed', client_id = 12}"
    with pytest.raises(ConfigError, match=r"^mimic\.client_id: must be at most 11 for 12 clients .*got 12$"):
        make_plan(parse(text))


OWN = """
from typing import Annotated
from fedsim import Limit, Traced
from fedsim.aggregators import fedavg

def mine(*, num_suspects: Annotated[int, Traced(ge=0), Limit("3 f < K", lambda k: (k - 1) // 3), "f"] = 1):
    return fedavg()
"""


def test_a_users_own_rule_has_limits_too_and_the_command_says_so_in_one_line(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(OWN)
    config = tmp_path / "c.toml"
    config.write_text(PLANE + '[server]\naggregator = "mine.py:mine"\n')
    assert main(["run", str(config), "--mine.num-suspects", "4", "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(r"fedsim: error: mine\.num_suspects: .*at most 3 .*got 4$", line)


def test_a_limit_names_the_key_that_was_set(tmp_path, capsys):
    config = tmp_path / "c.toml"
    config.write_text(PLANE + "server.aggregator = 'krum'\nserver.pre_aggregators = ['bucketing']")
    assert main(["run", str(config), "--dry-run", "--server.num-byzantine", "4"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedsim: error: krum.num_byzantine (of server.num_byzantine = 4): must be at most ")


def test_what_authors_promise_nothing_for_is_told(tmp_path, capsys):
    config = tmp_path / "c.toml"
    config.write_text(PLANE + "server.aggregator = 'krum'\n[[sweep]]\nkrum.num_byzantine = [3, 4]")
    assert main(["run", str(config), "--dry-run"]) == 0
    note = r"fedsim: note: krum\.num_byzantine: should be at most 3 .*got 4; .*$"
    assert re.match(note, capsys.readouterr().err.splitlines()[0])


def test_a_trusted_client_that_may_be_absent_or_malicious_is_told():
    text = PLANE + 'server = {aggregator = "monna", cohort_size = 6}\nmonna.num_byzantine = 2\nattack.kind = "ipm"\n'
    absent, malicious = make_plan(parse(text + "attack.fraction = 0.25")).notes
    assert absent.startswith("monna.client_id: the trusted client is in 50 % of the cohorts")
    assert malicious.startswith("monna.client_id: client 0 may be malicious")
    text = text.replace("= 6", "= 12")
    assert make_plan(parse(text + "attack.clients = [0, 3]")).notes == (malicious,)
    assert make_plan(parse(text + "attack.clients = [0, 3]\nmonna.client_id = 1")).notes == ()


def test_a_note_on_losses_that_take_longer_than_training():
    text = PLANE.replace("= 60", "= 156") + "client = {steps = 2, batch_size = 2}\n[[sweep]]\n"
    (note,) = make_plan(parse(text + 'server.aggregator = ["median", "rfa", "arfl"]')).notes
    assert "train on 4 examples and measure the losses of 13; false" in note
    for clause in ('server.aggregator = ["arfl"]', "record.losses = [false]", "client.steps = [3]"):
        assert not make_plan(parse(text + clause)).notes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregator": trimmed_mean(num_byzantine=2)}, r"^num_byzantine: .* a cohort of 3 .*got 2"),
        ({"aggregator": bulyan(num_byzantine=1)}, r"^num_byzantine: .* a cohort of 3 .*got 1"),
        ({"aggregator": dnc(num_byzantine=2)}, r"^num_byzantine: .* a cohort of 3 .*got 2"),
        ({"aggregator": multi_krum(num_byzantine=2)}, r"^num_byzantine: .* a cohort of 3 .*got 2"),
        ({"aggregator": multi_krum(num_selected=4)}, r"^num_selected: .* a cohort of 3 .*got 4"),
        ({"aggregator": fedsim.chain(nnm(num_byzantine=2), fedavg())}, r"^num_byzantine: .* a cohort of 3 .*got 2"),
        ({"aggregator": fedsim.chain(bucketing(size=4), fedavg())}, r"^size: .* a cohort of 3 .*got 4"),
    ],
)
def test_from_python_a_number_that_is_no_traced_one_is_refused(options, message):
    simulation = tiny.make_simulation(**options)
    data, hparams = tiny.draw_data(np.random.default_rng(0)), fedsim.HParams()
    state = jax.eval_shape(simulation.init, jax.random.key(0), data, hparams)
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(simulation.round, state, data, hparams)
