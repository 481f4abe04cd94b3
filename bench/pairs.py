"""Statistics of pairs of adjacent blocks: the loss of one side, its uncertainty, the decision."""

import statistics

LEAST_VALUES = 16  # with fewer, the spread itself is uncertain
KNOWN = 0.003  # stopping at the first clear result would stop on chance
WELL_KNOWN = 0.002  # precise enough


def lost_of(pairs):
    """Of each pair the median over its blocks of [ns without, ns with]: the part of the rate that is lost."""
    return [statistics.median(1 - without / with_ for without, with_ in pair) for pair in pairs]


def lost_by_cpu_of(makers):
    """As lost_of(), by the CPU time that is added, as a share of the time that the same blocks took by the clock: both of
    [[ns without, ns with] by CPU time, by the clock]."""
    for blocks in makers:
        added = statistics.median(with_ - without for (without, with_), _ in blocks)
        yield added / statistics.median(with_ for _, (_, with_) in blocks)


def quartiles(values):
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def half_width(values):
    """Half of the 95 % interval of their median."""
    low, high = quartiles(values)
    return 1.57 * (high - low) / len(values) ** 0.5


def below(values, bar):
    """Whether their median is below the bar for certain, or above it; None: neither."""
    distance = bar - statistics.median(values)
    if len(values) < LEAST_VALUES or abs(distance) < half_width(values):
        return None
    return distance > 0


def decided(values, bar):
    """Whether more values would not change the result."""
    if len(values) < LEAST_VALUES or (give := half_width(values)) > KNOWN:
        return False
    return give <= WELL_KNOWN or below(values, bar) is not None
