"""Hooks in torch that record a training from inside its process.

install.py installs and removes all of them. One file per part of torch:

    loaders.py, workers.py     DataLoader: waits in next(); how its batches are made
    training.py                backward, optimizers, GradScaler, checkpoints
    cuda.py                    copies to the GPU, waits for it, its memory
    distributed.py             ranks, collectives
    dynamo.py                  torch.compile
    wrap_loader.py             leat.wrap_loader

What they share: patch.py replaces and restores functions, process.py keeps what this process has
reported, user_code.py finds call sites, object_table.py and text.py are helpers.

Hooks only record. Steps, phases and findings are made in leat, outside the training.
"""
