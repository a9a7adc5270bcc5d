"""Kernels and bytes, counted in the text of programs."""

import jax
import jax.numpy as jnp
import pytest

from fedsim.engine import hlo

# A loop of five rounds, each of which takes a row out of [5, 4] and adds it; two kernels around it.
LOOP = """\
HloModule m

%fused (a: f32[5,4], i: s32[]) -> f32[4] {
  %a = f32[5,4]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  %row = f32[1,4]{1,0} dynamic-slice(%a, %i, %zero), dynamic_slice_sizes={1,4}
  ROOT %out = f32[4]{0} bitcast(%row)
}

%body (p: (s32[], f32[5,4], f32[4])) -> (s32[], f32[5,4], f32[4]) {
  %p = (s32[], f32[5,4]{1,0}, f32[4]{0}) parameter(0)
  %n = s32[] get-tuple-element(%p), index=0
  %rows = f32[5,4]{1,0} get-tuple-element(%p), index=1
  %sum = f32[4]{0} get-tuple-element(%p), index=2
  %one = f32[4]{0} fusion(%rows, %n), kind=kLoop, calls=%fused, backend_config={"estimated_cycles":"100"}
  %next = f32[4]{0} add(%sum, %one)
  ROOT %t = (s32[], f32[5,4]{1,0}, f32[4]{0}) tuple(%n, %rows, %next)
}

%condition (q: (s32[], f32[5,4], f32[4])) -> pred[] {
  %q = (s32[], f32[5,4]{1,0}, f32[4]{0}) parameter(0)
  %k = s32[] get-tuple-element(%q), index=0
  %five = s32[] constant(5)
  ROOT %less = pred[] compare(%k, %five), direction=LT
}

ENTRY %main (x: f32[5,4], start: f32[4]) -> f32[4] {
  %x = f32[5,4]{1,0} parameter(0)
  %start = f32[4]{0} parameter(1)
  %null = s32[] constant(0)
  %copied = f32[5,4]{1,0:S(1)} copy(%x)
  %all = (s32[], f32[5,4]{1,0}, f32[4]{0}) tuple(%null, %x, %start)
  %loop = (s32[], f32[5,4]{1,0}, f32[4]{0}) while(%all), condition=%condition, body=%body
  ROOT %result = f32[4]{0} get-tuple-element(%loop), index=2
}
"""


def test_a_loop_counts_as_often_as_it_goes_round():
    copy = 5 * 4 * 4  # into the vector memory: only read
    row = 4 * 4 + 4 + 4 * 4  # a row and its index are read, a row is written
    add = 3 * 4 * 4
    assert hlo.analyze_cost(LOOP) == hlo.Cost(kernels=1 + 5 * 2, bytes=copy + 5 * (row + add), cycles=5 * 100)


NESTED = """\
HloModule m

%inner (a: f32[5,4], i: s32[]) -> f32[1,4] {
  %a = f32[5,4]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %row = f32[1,4]{1,0} dynamic-slice(%a, %i, %zero), dynamic_slice_sizes={1,4}
}

%outer (b: f32[20], j: s32[]) -> f32[4] {
  %b = f32[20]{0} parameter(0)
  %j = s32[] parameter(1)
  %square = f32[5,4]{1,0} bitcast(%b)
  %one = f32[1,4]{1,0} fusion(%square, %j), kind=kLoop, calls=%inner
  ROOT %out = f32[4]{0} bitcast(%one)
}

ENTRY %main (x: f32[20], n: s32[]) -> f32[4] {
  %x = f32[20]{0} parameter(0)
  %n = s32[] parameter(1)
  %fetch = ((f32[20]{0}), f32[8]{0:S(1)}, s32[]{:S(2)}) slice-start(%x), slice={[0:8]}
  ROOT %result = f32[4]{0} fusion(%x, %n), kind=kLoop, calls=%outer
}
"""


def test_parts_count_also_inside_fusions_and_of_asynchronous_copies():
    fetched = 8 * 4  # read; it is written to the vector memory
    row = 4 * 4 + 4 + 4 * 4
    assert hlo.analyze_cost(NESTED) == hlo.Cost(kernels=2, bytes=fetched + row, cycles=0)


@pytest.mark.parametrize("trips", [3, 11])
def test_a_compiled_program_is_read(trips):
    """A product in a scan, on the compiler at hand."""
    program = lambda x, w: jax.lax.scan(lambda x, _: (x @ w, None), x, None, length=trips)[0]
    text = jax.jit(program).lower(jnp.ones((64, 64)), jnp.ones((64, 64))).compile().as_text()
    cost = hlo.analyze_cost(text)
    assert cost.kernels >= trips
    assert trips * 3 * 64 * 64 * 4 <= cost.bytes <= 3 * trips * 3 * 64 * 64 * 4
