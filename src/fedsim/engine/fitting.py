"""The widest layout that fits into a device's memory, as its compiler says: found in a few compilations."""

from collections.abc import Callable, Sequence

from fedsim.engine.layout import Layout

Needs = Callable[[Layout], int | None]  # bytes of a device in all; None: the compiler refused for want of memory


def widest(layouts: Sequence[Layout], needs: Needs, available: int) -> tuple[Layout, int | None]:
    """The first of `layouts`, widest first, that fits into `available` bytes, and what it needs.

    What a layout needs is taken to grow with the models in lockstep, so most narrower ones are not even tried. Where
    none fits, it is the last.
    """
    left = list(layouts)
    while True:
        one = left.pop(0)
        needed = needs(one)
        if not left or (needed is not None and needed <= available):
            return one, needed
        most = models(one) * available // needed if needed else models(one) // 2
        left = [other for other in left if models(other) <= most] or left[-1:]


def models(layout: Layout) -> int:
    """Models in lockstep on a device."""
    return layout.client_width * layout.run_width
