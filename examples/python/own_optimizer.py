"""Research: a custom model, loss and optimizer, with everything sharded over the ranks.

A contrastive loss over the points of all ranks (arXiv:2002.05709, equation 1), and sign descent
with momentum, written with tensor functions.

Run: python3 own_optimizer.py, or mpirun -np 3 --bind-to none python3 own_optimizer.py
"""

import math

import shale
from shale import functions as F

POINTS, WIDTH, STEPS, TEMPERATURE = 16, 24, 60, 0.2


class Encoder(shale.Module):
    def __init__(self):
        super().__init__()
        self.inner = shale.Linear(self, "inner", 2, WIDTH, std=1)
        self.outer = shale.Linear(self, "outer", WIDTH, 8, std=0.3)

    def forward(self, x):
        y = self.outer(F.tanh(self.inner(x)))
        return y / F.sqrt(F.sum(y * y, -1, keep=True) + 1e-6)


def views(step, rank):
    """Returns points on a ring, and the same points slightly shifted."""
    angles = [math.tau * ((step * 7 + rank) % 97 / 97 + i / POINTS) for i in range(POINTS)]
    return [shale.tensor([[math.cos(a + d), math.sin(a + d)] for a in angles]) for d in (0, 0.05)]


def contrastive(a, b, rank):
    """Identifies each point, among the points of all ranks, by its second view."""
    everybody = shale.all_gather(b)
    logits = a @ everybody.transpose(0, 1) / TEMPERATURE
    wanted = shale.tensor([rank * POINTS + i for i in range(POINTS)])
    return shale.cross_entropy(logits.contiguous(), wanted) / POINTS


with shale.init() as runtime:
    model = Encoder()
    model.inner.shard(3, seed=5)
    model.shard(3, seed=5)
    momentum = {name: None for name in model.parameters()}
    for step in range(STEPS):
        loss = contrastive(*map(model, views(step, runtime.rank)), runtime.rank)
        shale.backward(loss / runtime.ranks)  # gradients are summed over ranks
        for name, m in momentum.items():
            p, g = model.local(name), model.local_grad(name)
            momentum[name] = g if m is None else m * 0.9 + g * 0.1
            p.copy_(p - momentum[name] / (F.abs(momentum[name]) + 1e-8) * 0.01)
            model.local_changed(name)
        model.zero_grad()
        mean = runtime.sum(loss.item()) / runtime.ranks
        if runtime.rank == 0 and step % 10 in (0, 9):
            print(f"step {step + 1} | loss {mean:.6g}", flush=True)
