"""What each key reaches: changed in turn, it changes id, group, family and data set as its role promises."""

from contextlib import suppress
from dataclasses import make_dataclass
from functools import cache
from typing import Annotated, get_args

import jax
import msgspec
import numpy as np
import pytest

import fedsim
from fedsim.config import roles
from fedsim.config.components import flatten, is_number
from fedsim.config.fields import FIXED, _fixed_fields, settings_of
from fedsim.config.kinds import KINDS
from fedsim.config.registry import find
from fedsim.config.resolve import schema
from fedsim.config.schema import Config
from fedsim.config.sections import Role
from fedsim.config.toml import parse
from fedsim.engine import compiling
from fedsim.engine.data import load_dataset
from fedsim.engine.families import Group, family_key, make_family, program_key
from fedsim.engine.layout import Layout
from fedsim.engine.streamed.inputs import make_inputs
from fedsim.errors import ConfigError

BASE = parse("""
data = {num_train = 60, num_test = 20, num_clients = 6}
server = {cohort_size = 4, num_rounds = 4, eval_every = 2, num_byzantine = 1, aggregator = "trimmed_mean"}
client = {batch_size = 4, momentum = 0.5, weight_decay = 0.1}
mlp = {hidden_sizes = [4]}
corruption = {kind = "flipping", fraction = 0.5, start_round = 1}
attack = {kind = "ipm", fraction = 0.5}
""").values
NATURAL = {key: value for key, value in BASE.items() if not key.startswith("data.")} | {"data.partition": "natural"}
GIVEN = {"data.num_train": 50, "data.max_test_examples": 1, "images.levels": ("class",)}
VALUES = GIVEN | {"data.partition": "shards", "corruption.kind": "shuffling", "attack.kind": "alie"}


ID = "f35e89c9488f5932"
LATER_KEYS_ID = "e8c6726fb90433fc"  # of a run that has keys which are younger than ids


def resolve(values) -> Config:
    return schema().resolve(values)


def alternatives(key, value, kind):
    """Other values of a key; some of them are refused, or equal to its own."""
    yield from (VALUES[key],) if key in VALUES else KINDS[key].built_in if key in KINDS else ()
    yield from (option for member in (kind, *get_args(kind)) for option in get_args(member) if isinstance(option, str))
    yield from [value + value, ("nnm",), (1,)] if isinstance(value, tuple) else ["text", not value]
    number = value if is_number(value) else 0
    yield from (2, number + 1, number / 2, 0.25, 0)


def changed(base, key):
    """The run, and with another value of `key` that is allowed and has an effect."""
    before = resolve(base)
    for value in alternatives(key, flatten(before)[key], schema().fields[key].type):
        with suppress(ConfigError):
            after = resolve(base | {key: value})
            if after != before or key == "name":
                return before, after
    raise AssertionError(f"{key}: has no other value")


@cache
def data_of(is_natural):
    """The data set of the base, and the data in memory that it is made of."""
    rng = np.random.default_rng(0)
    x, y, ids = rng.normal(size=(90, 3)), rng.integers(0, 3, 90), np.repeat(np.arange(9), 10)
    memory = fedsim.from_arrays(x.astype(np.float32), y, client_ids=ids) if is_natural else None
    return load_dataset(resolve(NATURAL if is_natural else BASE), memory), memory


def check_roles(key, before, after, dataset):
    """The ids, groups, families and choices of data of two runs that differ in `key` are equal as its role promises."""
    field, values = schema().fields[key], [dict(flatten(run)) for run in (before, after)]
    is_input = field.is_traced and all(is_number(run.get(key)) for run in values)
    role = Role.TRACED if is_input else field.role
    same = lambda function: function(before) == function(after)
    assert same(roles.run_id) == (role in (Role.RECORD, Role.ENGINE) or key == "server.num_rounds")
    assert same(program_key) == (role is Role.TRACED or key == "name")
    is_measured = key in ("record.classes", "record.local_steps")
    assert same(lambda run: family_key([run], dataset)) == (
        (role in (Role.TRACED, Role.BRANCH, Role.RECORD) and not is_measured)
        or key in ("data.seed", "server.num_rounds")
    )
    assert same(roles.data_choice) == (role is not Role.DATA)


@pytest.mark.parametrize("key", FIXED)
def test_a_key_reaches_what_its_role_says(key):
    is_natural = any(
        (condition.name, condition.is_negated) == ("data.partition", False) for condition in FIXED[key].only_if
    )
    is_natural |= key == "data.test_fraction"
    needed = {"adapter.rank": 1} if key.startswith("adapter.") and key != "adapter.rank" else {}
    before, after = changed((NATURAL if is_natural else BASE) | needed, key)
    dataset, memory = data_of(is_natural)
    check_roles(key, before, after, dataset)
    if key != "data.deduplicate":  # there are no duplicates
        arrays = lambda data: jax.tree.leaves((data.train, data.x_test, data.root, data.validation))
        pairs = zip(arrays(load_dataset(after, memory)), arrays(dataset), strict=False)
        is_same = all(np.array_equal(a, b) for a, b in pairs)
        assert is_same == (FIXED[key].role is not Role.DATA)


@pytest.mark.parametrize(("key", "name"), [(key, name) for key, kind in KINDS.items() for name in kind.built_in])
def test_a_setting_reaches_what_its_role_says(key, name):
    named = {key: (name,) if key == "server.pre_aggregators" else name}
    base = {k: v for k, v in BASE.items() if not k.startswith("mlp") and k != "server.num_byzantine"} | named
    for field in settings_of(find(key, name)):
        another = lambda value: value + type(value)(1)
        needed = {unmet.name: another(unmet.value) if unmet.is_negated else unmet.value for unmet in field.only_if}
        check_roles(field.name, *changed(base | needed, field.name), data_of(False)[0])


def lowered(values) -> list[str]:
    """The programs of a run before they are compiled, as text."""
    config = resolve(values)
    group = Group((0,), [config], load_dataset(config), Layout())
    programs = compiling._trace(make_inputs(group, make_family([group])))
    return [program.as_text() for program in programs.lowered.values()]


def test_inputs_and_what_is_recorded_change_no_program():
    base, values = lowered(BASE), flatten(resolve(BASE))
    is_input = lambda key: schema().fields[key].is_traced and is_number(values[key])
    halves = {key: type(values[key])(values[key] / 2) for key in values if is_input(key)}
    others = {"seed": 3, "server.num_byzantine": 0, "corruption.start_round": 2}
    recorded = {"record.clients": "none", "record.models": True, "record.final_states": True, "record.data": True}
    assert lowered(BASE | halves | others | recorded | {"server.num_rounds": 8}) == base


def test_only_chunks_shape_programs_unless_rates_depend_on_all_rounds():
    form = lambda **values: family_key([resolve(BASE | values)], data_of(False)[0])
    more, rare = {"server.num_rounds": 8}, {"server.num_rounds": 2, "server.eval_every": 100}
    assert form(**more) == form(**rare) == form() != form(**rare | {"server.num_rounds": 3})
    assert form(**more, **{"client.schedule": "cosine"}) != form(**{"client.schedule": "cosine"})
    assert form(**{"server.patience": 2}) == form(**{"server.patience": 3}) != form()


def test_a_key_without_a_role_is_an_error():
    with pytest.raises(AssertionError, match="key has no role"):
        _fixed_fields(make_dataclass("Section", [("key", Annotated[int, "meaning"], 0)])())


def test_an_id_depends_on_the_numbers_of_a_run_only():
    """Not on the order of keys, on lists or tuples, or on keys that other keys switch off."""
    ids = {roles.run_id(resolve(values)) for values in (BASE, dict(reversed(BASE.items())), BASE | {"name": "other"})}
    assert ids == {roles.run_id(resolve(msgspec.json.decode(msgspec.json.encode(flatten(resolve(BASE))))))}
    assert {len(digits) for digits in ids} == {16}
    assert roles.run_id(resolve({})) == ID  # in run folders: runs with another one would be computed again
    assert roles.run_id(resolve({"server.aggregator": "rfa", "server.optimizer": "adagrad"})) == LATER_KEYS_ID
    steps = BASE | {"client.steps": 2}
    assert roles.run_id(resolve(steps)) == roles.run_id(resolve(steps | {"client.epochs": 3}))


PLUGIN = """
def late(num_rounds): return lambda rate, t: rate
def plain(): return lambda rate, t: rate
"""


@pytest.mark.parametrize("key", ["client.schedule", "server.schedule"])
def test_more_rounds_are_another_run_only_if_rates_depend_on_them(key, tmp_path):
    (tmp_path / "rates.py").write_text(PLUGIN)
    plugins = [f"{tmp_path / 'rates.py'}:{name}" for name in ("late", "plain")]
    num_ids = {
        name: len({roles.run_id(parse("", {key: name, "server.num_rounds": rounds}).runs()[0]) for rounds in (10, 20)})
        for name in ("constant", "step", "exponential", "cosine", *plugins)
    }
    assert list(num_ids.values()) == [1, 1, 1, 2, 2, 1]
