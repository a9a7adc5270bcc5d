"""How many examples clients in lockstep compute, padding included."""

import numpy as np

MIN_USED_SHARE = 0.95  # of the examples that are computed
NUM_COHORTS = 64
FORWARD_SHARE = 1 / 3  # of a gradient step's time: what the loss of an example takes


def num_computed(
    sizes: np.ndarray, width: int, batch_size: int, micro_batch: int = 0, steps: int | None = None
) -> np.ndarray:
    """The examples [R] that an epoch, or `steps` steps, of cohorts of `sizes` [R, K] computes, largest client first.

    Padding is computed, too. A wave of `width` clients makes as many steps as its largest client needs, and clients
    without examples fill up the last wave.
    """
    padding = -sizes.shape[1] % width
    largest = np.pad(sizes, ((0, 0), (0, padding)))[:, ::width]  # of each wave
    micro = micro_batch or batch_size
    per_batch, (full, rest) = -(-batch_size // micro), np.divmod(largest, batch_size)
    micro_batches = full * per_batch - (-rest // micro)  # of an epoch
    if steps is not None:
        epochs, left = np.divmod(steps, np.maximum(-(-largest // batch_size), 1))
        micro_batches = epochs * micro_batches + left * per_batch  # an epoch that is cut off has whole batches only
    return width * micro * np.sum(micro_batches, axis=1)


def most_computed(
    cohorts: np.ndarray, num_devices: int, batch_size: int, micro_batch: int = 0, steps: int | None = None
) -> float:
    """The examples of the device that computes most, on average over `cohorts` [R, K], one client at a time.

    Clients are dealt to the devices as `map_clients` does: in serpentine order, largest first.
    """
    turns = np.pad(cohorts, ((0, 0), (0, -cohorts.shape[1] % num_devices))).reshape(len(cohorts), -1, num_devices)
    turns[:, 1::2] = turns[:, 1::2, ::-1].copy()
    computed = [num_computed(turns[:, :, device], 1, batch_size, micro_batch, steps) for device in range(num_devices)]
    return float(np.max(computed, axis=0).mean())


def sample_cohort_sizes(num_examples: np.ndarray, cohort_size: int) -> np.ndarray:
    """The sizes [64, K], largest first, of random cohorts of clients with `num_examples` [N]."""
    rng = np.random.default_rng(0)
    return -np.sort(-np.stack([rng.choice(num_examples, cohort_size, replace=False) for _ in range(NUM_COHORTS)]))


def efficient_width(
    num_examples: np.ndarray, cohort_size: int, batch_size: int, max_width: int, steps: int | None = None
) -> int:
    """The most clients in lockstep, up to `max_width`, with at most 5 % more examples computed than one at a time.

    Over random cohorts of clients with `num_examples` [N].
    """
    cohorts = sample_cohort_sizes(num_examples, cohort_size)
    computed = lambda width: num_computed(cohorts, width, batch_size, steps=steps).sum()
    widths = range(1, min(max_width, cohort_size) + 1)
    return max(width for width in widths if computed(width) * MIN_USED_SHARE <= computed(1))
