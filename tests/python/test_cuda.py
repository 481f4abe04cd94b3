"""With a GPU: copies, waits, memory, and optimizer steps in autograd's own threads."""

import pytest
import torch
from receiver import NESTED, RESERVED, RETRIES, SPLIT

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_training_on_the_gpu(train):
    run = train("""
    import time
    assert not torch.cuda.is_initialized()
    model = net().cuda()
    opt = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for x, y in DataLoader(Rows(101), pin_memory=True):
        x, y = x.to("cuda", non_blocking=True), y.cuda()
        scaler.scale(loss_of(model, x, y)).backward()
        scaler.step(opt)
        scaler.update()
        time.sleep(0.005)
    torch.cuda.synchronize()
    torch.cuda.current_stream().synchronize()
    model.weight.sum().item()
    """)
    main = run.main
    assert main.header["signals"] & 31 == 31 and main.header["devices"].startswith("GPU-")
    copies = main.of("h2d")
    assert sum(r.arg == 16 for r in copies) == 101 and sum(r.arg == 8 for r in copies) >= 101
    assert len(main.of("optimizer")) == len(main.of("backward")) == 101
    for name in ("cuda.synchronize", "Stream.synchronize"):
        assert len(main.spans(name, "sync")) == 1
    assert len(main.spans("item", "sync")) >= 1
    memory = main.of("memory")
    for flag in (RESERVED, SPLIT, RETRIES):
        assert len([r for r in memory if r.flags & flag]) == len(memory) / 4 >= 1
    assert all(r.arg > 0 for r in memory if not r.flags & (SPLIT | RETRIES))
    assert len({r.t1 for r in memory}) == len(memory) / 4  # one time, so one row


def test_steps_inside_the_backward(train):
    run = train("""
    model = net().cuda()
    one = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: one[p].step())
    for _ in range(7):
        model(torch.zeros(1, 4, device="cuda")).sum().backward()
    """)
    assert [bool(r.flags & NESTED) for r in run.main.of("optimizer")] == [True] * 14
    assert len(run.main.of("backward")) == 7
