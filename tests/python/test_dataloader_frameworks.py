"""leat.DataLoader with frameworks that read its attributes and make new loaders of it. Each test
is skipped where its framework is not installed; none of them is needed for anything else."""

import os

import pytest
import torch
from loader_kit import leat, leat_data, numbers
from torch.utils.data import TensorDataset


def test_accelerate():
    """prepare() makes a loader of torch's class: the same samples, not in C."""
    accelerate = pytest.importorskip("accelerate")
    loader = leat.DataLoader(torch.arange(23), 4, True, drop_last=True)
    prepared = accelerate.Accelerator(cpu=True).prepare(loader)
    for _ in range(2):
        seen = numbers(prepared)
        assert len(seen) == len(set(seen)) == 20 and set(seen) <= set(range(23))
    assert len(prepared) == len(loader) and prepared.dataset is loader.dataset
    skipped = accelerate.skip_first_batches(leat.DataLoader(torch.arange(23), 4), 2)
    assert numbers(skipped) == list(range(8, 23))


def test_lightning():
    """The trainer uses the given loader itself, so batches are made in C."""
    lightning = pytest.importorskip("pytorch_lightning")

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen = []

        def training_step(self, batch, number):
            self.seen += batch[0][:, 0].tolist()
            return self.layer(batch[0]).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    rows = TensorDataset(torch.arange(23.0).reshape(23, 1))
    loader = leat.DataLoader(rows, 4, True, seed=1)
    model = Model()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", devices=1, **quiet)
    trainer.fit(model, loader)
    assert loader.plan().runs_in_c and loader.stats().batches >= 2 * 6
    assert sorted(model.seen) == sorted(2 * list(range(23)))


def test_hugging_face(tmp_path):
    """A Trainer uses what its get_train_dataloader() returns, so batches are made in C."""
    transformers = pytest.importorskip("transformers")
    loader = leat.DataLoader(leat_data.Tensors(x=torch.arange(23.0).reshape(23, 1)), 4, True)
    seen = []

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x):
            seen.extend(x[:, 0].tolist())
            return {"loss": self.layer(x).sum()}

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return loader

    options = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    arguments = transformers.TrainingArguments(os.fspath(tmp_path), num_train_epochs=2, **options)
    Trainer(Model(), arguments).train()
    assert loader.plan().runs_in_c and loader.stats().batches == 2 * 6
    assert sorted(seen) == sorted(2 * list(range(23)))
