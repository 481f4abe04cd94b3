"""`leat bench` of a training on a device, without a GPU: "meta" is a device to which tensors can be copied
and which computes in no time. tools/gpu-check.sh tests the rest on a GPU."""

import pytest
import torch
from leat.bench import device_copies
from test_bench import bench  # noqa: F401, a fixture

GPU = """
torch.cuda.is_available = lambda: True  # what is asked before a step is looked at
device = torch.device("meta")
seen = []

def train_there(loader, device=device, non_blocking=True):
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in loader:
        if not seen or seen[-1] != x.device.type:
            seen.append(x.device.type)
            print("given", x.device.type, flush=True)
        x = x.to(device, non_blocking=non_blocking)
        y = y.to(device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
IN_MEMORY = GPU + "data = TensorDataset(torch.randn(4096, 4), torch.zeros(4096).long())\n"


@pytest.mark.alone
def test_copy_of_the_script_and_row_of_leat(bench):  # noqa: F811
    result = bench.run(
        IN_MEMORY
        + "loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=1, timeout=60)\n"
        + "train_there(loader)\n",
        "--max-workers",
        "1",
    )
    loader = result["loader"]
    assert (loader["device"], loader["non_blocking"]) == ("meta", True)
    assert loader["copy_bytes"] == 64 * (4 * 4 + 8)
    rows = result["rows"]
    assert {row["settings"]["pin_memory"] for row in rows} == {True, False}
    (leat,) = [row for row in rows if row["settings"]["leat"]]
    assert leat["status"] == "ok" and leat["threads"] >= 1 and leat["ahead"] >= 1, leat
    assert leat["best"] and result["choice"]["settings"]["leat"]
    line = 'leat.DataLoader(data, batch_size=64, shuffle=True, device="meta")'
    assert result["choice"]["line"] == line
    # The first step gets the batch of the loader; the steps that are timed get one on the device.
    assert [x for x in bench.stderr.splitlines() if "given" in x] == ["given cpu", "given meta"]
    assert result["model"]["steps"] >= 3


@pytest.mark.alone
def test_a_leat_loader_is_the_current_row(bench):  # noqa: F811
    result = bench.run(
        IN_MEMORY
        + "import leat\n"
        + "train_there(leat.DataLoader(data, 64, shuffle=True, device=device))\n",
        "--max-workers",
        "0",
    )
    (now,) = [row for row in result["rows"] if row["now"]]
    assert now["settings"]["leat"] and now["best"]
    assert (
        result["choice"]["line"]
        == "leat.DataLoader(data, batch_size=64, shuffle=True, device=device)"
    )
    assert "given cpu" not in bench.stderr  # no batch would be copied there


def test_training_on_the_cpu_with_a_gpu_present(bench):  # noqa: F811
    result = bench.run(IN_MEMORY + "train(DataLoader(data, batch_size=64))\n", "--max-workers", "0")
    assert result["loader"]["device"] is None
    assert not any(row["settings"]["leat"] for row in result["rows"])
    assert {row["settings"]["pin_memory"] for row in result["rows"]} == {False}
    assert result["model"]["steps"] >= 3


def test_no_row_of_leat_for_user_code(bench):  # noqa: F811
    result = bench.run(
        GPU
        + "loader = DataLoader(Rows(wait=0), batch_size=16)\n"
        # Inspecting a first batch is not a step; the tensor copied then is not the batch's own.
        + "next(iter(loader))\n"
        + "train_there([(x.float() * 2, y) for x, y in []])\n"
        + "for x, y in loader:\n"
        + "    print('got', x.device.type, flush=True)\n"
        + "    (x * 2).to(device)\n",
        "--max-workers",
        "0",
    )
    loader = result["loader"]
    assert (loader["device"], loader["non_blocking"]) == ("meta", False)
    assert not any(row["settings"]["leat"] for row in result["rows"])
    # It computes with its batches before it copies, so they stay on the CPU.
    assert "got meta" not in bench.stderr
    assert result["model"]["steps"] >= 3, (result["model"], bench.stderr)


def test_without_page_locked_memory(bench):  # noqa: F811
    # This torch reports a GPU, and has no page-locked memory.
    result = bench.run(
        IN_MEMORY + "train_there(DataLoader(data, batch_size=64, pin_memory=True))\n",
        "--max-workers",
        "0",
    )
    assert result["model"]["error"] is None and result["model"]["steps"] >= 3, bench.stderr


def test_a_first_batch_that_does_not_come(bench):  # noqa: F811
    result = bench.run(
        GPU
        + "class Bad(Rows):\n"
        + "    def __getitem__(self, i): raise KeyError('no such file')\n"
        + "train_there(DataLoader(Bad(), batch_size=8))\n",
        status=1,
    )
    assert "no such file" in result["rows"][0]["error"]
    assert result["choice"] is None


def test_a_script_of_one_step(bench):  # noqa: F811
    result = bench.run(
        IN_MEMORY + "x, y = next(iter(DataLoader(data, batch_size=64)))\nx.to(device)\n", status=1
    )
    assert result["rows"] == [] and result["choice"] is None
    assert "ended within its first steps" in result["model"]["error"]
    assert result["verdict"]["sentence"].startswith("The search ended before any settings")


@pytest.mark.alone
def test_another_loader_in_between(bench):  # noqa: F811
    result = bench.run(
        IN_MEMORY
        + "next(iter(DataLoader(data, batch_size=32)))\n"
        + "train_there(DataLoader(data, batch_size=64))\n",
        "--max-workers",
        "0",
    )
    assert (
        result["choice"]["settings"]["batch_size"] == 32
    )  # the first loader is measured; see --loader
    assert result["model"]["error"] == "the script made no further steps"


# ---- copies of a step


def watched(step, batch):
    watch = device_copies.CopyWatch(torch)
    watch.begin(batch)
    try:
        step(batch)
    finally:
        watch.end()
    assert "to" not in vars(torch.Tensor) and "copy_" not in vars(torch.Tensor)
    return watch.method()


@pytest.mark.parametrize(
    ("copy", "non_blocking"),
    [
        (lambda x: x.to("meta"), False),
        (lambda x: x.to("meta", non_blocking=True), True),
        (lambda x: x.to("meta", torch.float64, True), True),
        (lambda x: x.to(torch.empty(0, device="meta"), True), True),
        (lambda x: torch.empty_like(x, device="meta").copy_(x), False),
        (lambda x: torch.empty_like(x, device="meta").copy_(x, True), True),
    ],
)
def test_every_form_of_a_copy(copy, non_blocking):
    way = watched(lambda batch: copy(batch["x"]), {"x": torch.ones(8), "n": 5})
    assert way.device.type == "meta" and way.non_blocking is non_blocking
    assert way.positions == {0}


def test_calls_that_do_not_copy_to_a_device():
    x = torch.ones(8)
    assert watched(lambda x: (x.to(torch.float64), x.clone().copy_(x), x.to("cpu")), x) is None


def test_only_what_the_script_copies():
    batch = (torch.ones(8), {"lengths": torch.ones(4), "y": torch.ones(2)})
    step = lambda batch: (batch[0].to("meta", non_blocking=True), batch[1]["y"].to("meta"))  # noqa: E731
    way = watched(step, batch)
    assert way.positions == {0, 2} and way.non_blocking is True  # the larger one decides
    assert way.bytes(batch) == 4 * (8 + 2)
    assert [t.numel() for t in way.move(batch, pinned=False)] == [8, 2]
    there = way.put(batch)
    kinds = there[0].device.type, there[1]["lengths"].device.type, there[1]["y"].device.type
    assert kinds == ("meta", "cpu", "meta")


def test_a_copy_of_an_earlier_batch():
    watch = device_copies.CopyWatch(torch)
    first, second = torch.ones(8), torch.ones(8)
    for batch in (first, second):
        watch.begin(batch)
    first.to("meta", non_blocking=True)
    watch.end()
    assert watch.method().positions == {0}


def test_a_copy_of_computed_values():
    batch = [torch.ones(8), torch.ones(2)]
    way = watched(lambda batch: (batch[0] * 2).to("meta"), batch)
    assert way.positions == frozenset()
    assert len(way.move(batch, pinned=True)) == 2  # all tensors, for the rows
    assert [t.device.type for t in way.put(batch)] == ["cpu", "cpu"]
