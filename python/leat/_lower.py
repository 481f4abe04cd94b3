"""What can be given to the engine, and why the rest cannot."""


def find(loader):
    """(what the engine needs, ()) or (None, reasons)."""
    return None, ["the engine is not built in"]


def plan(loader, lowered, reasons):
    from leat._loader_plan import Plan

    return Plan("x", [("source", "x", "torch")], reasons)
