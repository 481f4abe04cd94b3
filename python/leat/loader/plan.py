"""What leat.DataLoader.plan() returns: which parts run in C and which through torch, and why."""

from leat.loader import engine_iterator
from leat.loader.index_batches import process_group


class Plan:
    """
    runs_in_c   whether the engine makes the batches
    reasons     why it does not
    rows        (part, what, where), where is 'C' or 'torch'
    """

    def __init__(self, title, rows, reasons=()):
        self.title = title
        self.rows = tuple(rows)
        self.reasons = tuple(reasons)
        self.runs_in_c = not self.reasons

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
        return f"<plan: {'C' if self.runs_in_c else 'torch'}, {self.title}>"


def plan_of(loader, spec, reasons):
    title = f"{type(loader).__qualname__} over {type(loader.dataset).__qualname__}"
    rank, world_size = loader._leat_world()
    share = f", rank {rank} of {world_size}" if world_size > 1 else ""
    if spec is None:
        return Plan(title, _torch_rows(loader, share), reasons)
    return Plan(title, _engine_rows(loader, spec, share))


def _torch_rows(loader, share):
    order = "torch's" if loader._leat_shared.own_order else given_order(loader)
    if not loader._dataset_kind and loader._leat_orders():
        order = "shuffled by the seed" if loader._leat_shared.shuffled else "sequential"
    workers = f"{loader.num_workers} worker processes" if loader.num_workers else "none"
    return [
        ("source", type(loader.dataset).__qualname__, "torch"),
        ("order", order + share, "torch"),
        *_ranks(loader, "torch"),
        ("batch", f"collate_fn {name_of(loader.collate_fn)}", "torch"),
        ("workers", workers, "torch"),
        ("device", _device(loader, None)[0], "torch"),
    ]


def _engine_rows(loader, spec, share):
    size = loader.batch_size
    if size is None:
        size = getattr(loader.batch_sampler, "batch_size", None) or "as given"
    dropped = ", an incomplete last one is dropped" if loader.drop_last else ""
    budget = loader.memory_budget
    limit = "a quarter of the memory" if budget is None else f"{budget} bytes"
    return [
        ("source", spec.text, "C"),
        ("order", spec.order_text + share, "torch" if spec.order is None else "C"),
        *_ranks(loader, "torch" if spec.order is None else "C"),
        ("decode", spec.make_source().decode, "C"),
        ("batch", f"{size}, {_collation(spec)}{dropped}", "C"),
        ("threads", _threads(loader), "C"),
        ("memory", f"at most {limit}", "C"),
        ("device", *_device(loader, spec)),
    ]


def given_order(loader):
    """The order of a given sampler; the arguments that it makes ineffective."""
    text = "the given sampler's"
    given = (("seed", loader.seed), ("shard", loader.shard), ("rank", loader.rank))
    ignored = [f"{name}=" for name, value in given if value is not None]
    return f"{text}; {' and '.join(ignored)} ignored" if ignored else text


def _ranks(loader, where):
    """What shard= would do, where there are ranks and nothing divides the data among them."""
    world_size = process_group()[1]
    divided = loader._dataset_kind or not loader._leat_shared.own_order
    if world_size > 1 and not divided and not loader._leat_is_sharded():
        yield (
            "ranks",
            f"each of {world_size} has all samples; shard='auto' would divide them",
            where,
        )


def name_of(function):
    return getattr(function, "__qualname__", type(function).__qualname__)


def _collation(spec):
    if spec.layout is not None:
        return f"collated as {spec.layout!r} does"
    if spec.variable_fields and set(spec.variable_fields) == set(spec.bytes_fields):
        return "stacked, bytes in lists, as default_collate does"
    return "stacked as default_collate does"


def _threads(loader):
    current = loader._leat_shared.counters.threads()
    if current is not None:
        return f"{current[0]}, {current[1]}"
    first = "one less than the cores" if loader.num_threads is None else str(loader.num_threads)
    return f"{first}, then adapted to the training" if loader.autotune else first


def _device(loader, spec):
    """(what, where)."""
    device = loader.device
    if device is None or device.type == "cpu":
        return "cpu", "C"
    if device.type != "cuda":
        return str(device), "torch"
    if spec is None or not engine_iterator.engine_copies_to_device(loader, spec):
        return f"{device}: moved from page-locked memory on a separate stream", "torch"
    budget = loader.device_memory
    limit = "a quarter of its free memory" if budget is None else f"{budget} bytes of it"
    how = "copied from page-locked slots as they fill"
    if engine_iterator.may_keep_data_on_device(loader, spec):
        how = f"gathered there if the data fits, else {how}"
    return f"{device}: {how}, at most {limit}", "C"
