"""Medians and spreads of repeated runs."""

from statistics import median


def spread(values, digits=2):
    """`median [lowest, highest]`; one value stands alone, none is a dash."""
    values = [value for value in values if value is not None]
    if not values:
        return "-"
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def middle(values):
    """The median of what was measured, or None."""
    values = [value for value in values if value is not None]
    return median(values) if values else None


def ratios(ours, theirs):
    """Ratios of runs of the same round, which saw the same state of the machine."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]
