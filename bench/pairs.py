"""What pairs of neighbouring blocks tell: how much one side loses, and how well that is known."""

import statistics


def lost_of(pairs):
    """Of each pair the median over its blocks of [ns without, ns with]: the part of the rate that is lost."""
    return [statistics.median(1 - without / with_ for without, with_ in pair) for pair in pairs]


def quartiles(values):
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def half_width(values):
    """Half of the 95 % interval of their median."""
    low, high = quartiles(values)
    return 1.57 * (high - low) / len(values) ** 0.5
