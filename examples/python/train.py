"""A language model in a training loop of 15 lines, on any number of ranks.

Run: python3 train.py FILE [STEPS [STAGE]], or mpirun -np 2 --bind-to none python3 train.py FILE
"""

import random
import sys

import shale

LENGTH, BATCH = 32, 4
text = open(sys.argv[1], "rb").read()
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 20
stage = int(sys.argv[3]) if len(sys.argv) > 3 else 0


def batch(step, rank):
    """Returns windows of the text: inputs, and the bytes that follow them."""
    random.seed(f"{step} {rank}")
    rows = [random.randrange(len(text) - LENGTH) for _ in range(BATCH)]
    return (shale.tensor([list(text[row + shift:row + shift + LENGTH]) for row in rows])
            for shift in (0, 1))


with shale.init() as runtime:
    model = shale.LanguageModel("nano", context=LENGTH, layers=2).shard(stage, seed=1)
    optimizer = shale.Optimizer(model, "adamw", weight_decay=0.1)
    for step in range(steps):
        optimizer.prepare(step, lr=3e-3)
        ids, targets = batch(step, runtime.rank)
        loss = model.loss(ids, targets) * (1 / targets.size)
        shale.backward(model.mean_over_ranks(loss, targets.size))
        norm = model.clip_grad_norm(1.0)
        optimizer.step()
        model.zero_grad()
        mean = runtime.sum(loss.item()) / runtime.ranks
        if runtime.rank == 0:
            print(f"step {step + 1} | loss {mean:.9g} | norm {norm:.4f}", flush=True)
