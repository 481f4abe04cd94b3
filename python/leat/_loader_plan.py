"""What leat.DataLoader says of itself: the plan before, the figures after."""


class Plan:
    """What will run. `lowered` tells whether the engine makes the batches, `reasons` why not, and
    `rows` the parts as (part, what, where), where is 'C' or 'torch'; str() is for reading."""

    def __init__(self, title, rows, reasons=()):
        self.title = title
        self.rows = tuple(rows)
        self.reasons = tuple(reasons)
        self.lowered = not self.reasons

    def __str__(self):
        widest = max(len(what) for _, what, _ in self.rows)
        lines = [self.title]
        for part, what, where in self.rows:
            lines.append(f"  {part:<8} {what:<{widest}}  {where}".rstrip())
        if self.reasons:
            lines.append("  not in C:")
            lines += [f"    {reason}" for reason in self.reasons]
        return "\n".join(lines)

    def __repr__(self):
        return f"<plan: {'C' if self.lowered else 'torch'}, {self.title}>"


class Counts:
    """What the loader's iterators add up."""

    def __init__(self):
        self.batches = 0
        self.wait_ns = 0
