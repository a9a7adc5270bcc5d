"""Bytes between hosts, counted in the text of programs."""

import subprocess
import sys

import pytest

from fedsim.engine import collectives

# Three rounds, each gathers two arrays and sums one; then pairs gather one, and all a second one in two fusions.
TEXT = """\
HloModule m

%part (f: f32[2,8]) -> f32[8,8] {{
  %f = f32[2,8]{{1,0}} parameter(0)
  ROOT %g = f32[8,8]{{1,0}} all-gather(%f), channel_id=7, replica_groups={all}, dimensions={{0}}
}}

%body (p: (s32[], f32[2,8])) -> (s32[], f32[2,8]) {{
  %p = (s32[], f32[2,8]{{1,0}}) parameter(0)
  %n = s32[] get-tuple-element(%p), index=0
  %a = f32[2,8]{{1,0}} get-tuple-element(%p), index=1
  %both = (f32[8,8]{{1,0}}, f32[8,4]{{1,0}}) all-gather(%a, %a), replica_groups={all}, dimensions={{0}}
  %sum = f32[2,8]{{1,0}} all-reduce(%a), replica_groups={rows}, to_apply=%add
  ROOT %t = (s32[], f32[2,8]{{1,0}}) tuple(%n, %sum)
}}

%condition (q: (s32[], f32[2,8])) -> pred[] {{
  %q = (s32[], f32[2,8]{{1,0}}) parameter(0)
  %k = s32[] get-tuple-element(%q), index=0
  %three = s32[] constant(3)
  ROOT %less = pred[] compare(%k, %three), direction=LT
}}

ENTRY %main (x: f32[2,8]) -> f32[2,8] {{
  %x = f32[2,8]{{1,0}} parameter(0)
  %null = s32[] constant(0)
  %all = (s32[], f32[2,8]{{1,0}}) tuple(%null, %x)
  %loop = (s32[], f32[2,8]{{1,0}}) while(%all), condition=%condition, body=%body
  %start = (f32[2,8]{{1,0}}, f32[4,8]{{1,0}}) all-gather-start(%x), replica_groups={columns}, dimensions={{0}}
  %done = f32[4,8]{{1,0}} all-gather-done(%start)
  %first = f32[8,8]{{1,0}} fusion(%x), kind=kCustom, calls=%part
  ROOT %second = f32[8,8]{{1,0}} fusion(%x), kind=kCustom, calls=%part
}}
"""


@pytest.mark.parametrize(
    "groups",
    [
        {"all": "{{0,1,2,3}}", "rows": "{{0,1},{2,3}}", "columns": "{{0,2},{1,3}}"},
        {"all": "[1,4]<=[4]", "rows": "[2,2]<=[4]", "columns": "[2,2]<=[2,2]T(1,0)"},
    ],
)
def test_only_what_other_hosts_send_counts(groups):
    """On two hosts of two devices each, a gathering of all takes half from the other host, and rows stay at home."""
    text = TEXT.format(**groups)
    gathered, paired, fused = 4 * (8 * 8 + 8 * 4), 4 * 4 * 8, 4 * 8 * 8
    assert collectives.received_bytes(text, [0, 0, 1, 1]) == 3 * gathered / 2 + paired / 2 + fused / 2
    assert collectives.received_bytes(text, [0, 0, 0, 0]) == 0
    summed = 4 * 2 * 8
    assert (
        collectives.received_bytes(text, [0, 1, 2, 3])
        == 3 * (gathered * 3 / 4 + summed / 2) + paired / 2 + fused * 3 / 4
    )


PROGRAM = """
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from fedsim.engine import collectives
mesh = jax.make_mesh((4,), ("clients",), axis_types=(jax.sharding.AxisType.Auto,))
gather = lambda a: jax.lax.all_gather(a, "clients", tiled=True)
program = jax.jit(jax.shard_map(gather, mesh=mesh, in_specs=P("clients"), out_specs=P(), check_vma=False))
text = program.lower(jax.ShapeDtypeStruct((8, 3), np.float32)).compile().as_text()
print(collectives.received_bytes(text, [0, 0, 1, 1]))
"""


def test_a_compiled_gathering_is_counted(monkeypatch):
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "4")
    printed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert int(printed) == 8 * 3 * 4 / 2
