#!/usr/bin/env python3
"""PyTorch's speed of an image classifier's training step on this machine's CPU, for comparison with
bench_train's.

    python3 -m venv venv && venv/bin/pip install torch torchvision
    venv/bin/python images_cpu.py --model resnet50 --micro-batch 32 [--dtype bf16] [--json FILE]

Both sides must be measured in one session on an otherwise idle machine; with --beside, a run of
ours follows each of PyTorch's. torch.compile also needs a C++ compiler. A step is forward,
backward, clipping at 1.0, AdamW (fused, PyTorch's fastest on a CPU) and clearing the gradients, on
torchvision's model of bench_train's preset, with noise as images. Residual networks and their
images are channels_last. bf16 is autocast over f32 parameters.

Prints a row of JSON: impl, model, mode, dtype, threads, pixels, micro_batch, params, then

  step_ms         median over the steps; step_ms_min the fastest
  images_per_s    from the median
  first_step_ms   includes compilation
  cpu_share       processor time / (threads x wall time) over the measured steps
  ours_ms         with --beside: medians of bench_train's steps, one per turn
  ratio           with --beside: speed of our step relative to PyTorch's, from the medians
  loss            after the last step
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = {"vit-b16": "vit_b_16", "resnet18": "resnet18", "resnet50": "resnet50"}


def make_step(args):
    """Returns a function that runs one step and returns milliseconds and loss, and the
    parameters."""
    import torch
    import torch.nn.functional as F
    import torchvision

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    layout = torch.channels_last if args.model.startswith("resnet") else torch.contiguous_format
    model = getattr(torchvision.models, MODELS[args.model])(weights=None)
    model = model.train().to(memory_format=layout)
    images = torch.rand(args.micro_batch, 3, args.pixels, args.pixels) - 0.5
    images = images.contiguous(memory_format=layout)
    labels = torch.randint(0, 1000, (args.micro_batch,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)

    def forward():
        cast = (torch.autocast("cpu", dtype=torch.bfloat16) if args.dtype == "bf16"
                else contextlib.nullcontext())
        with cast:
            scores = model(images)
        return F.cross_entropy(scores.float(), labels)

    loss_of = torch.compile(forward) if args.mode == "compile" else forward

    def step():
        start = time.perf_counter()
        loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        return (time.perf_counter() - start) * 1e3, value

    return step, sum(p.numel() for p in model.parameters())


def ours(args):
    """Returns the median of bench_train's steps, in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "ours.json"
        subprocess.run([args.beside, "--model", args.model, "--dtype", args.dtype, "--pixels",
                        str(args.pixels), "--micro-batch", str(args.micro_batch), "--threads",
                        str(args.threads), "--warmup", "2", "--steps", str(args.steps),
                        "--no-floor", "--json", str(file)],
                       check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(file.read_text())["rows"]
    return next(row["step_ms"] for row in rows if row["kind"] == "image_step")


def measure(args):
    step, params = make_step(args)
    first_ms, _ = step()
    step()
    times, losses, beside = [], [], []
    wall = cpu = 0
    for _ in range(args.turns):
        wall_before, cpu_before = time.perf_counter(), time.process_time()
        for _ in range(args.steps):
            ms, loss = step()
            times.append(ms)
            losses.append(loss)
        wall += time.perf_counter() - wall_before
        cpu += time.process_time() - cpu_before
        if args.beside:
            beside.append(ours(args))
    import torch

    median = statistics.median(times)
    row = {"impl": f"pytorch-{torch.__version__.split('+')[0]}", "model": args.model,
           "mode": args.mode, "dtype": args.dtype, "threads": args.threads,
           "pixels": args.pixels, "micro_batch": args.micro_batch, "params": params,
           "step_ms": round(median, 1), "step_ms_min": round(min(times), 1),
           "images_per_s": round(args.micro_batch / median * 1e3, 2),
           "first_step_ms": round(first_ms, 1),
           "cpu_share": round(cpu / wall / args.threads, 3), "loss": round(losses[-1], 5)}
    if beside:
        row["ours_ms"] = [round(ms, 1) for ms in beside]
        row["ratio"] = round(median / statistics.median(beside), 3)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=tuple(MODELS), default="vit-b16")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--mode", choices=("eager", "compile"), default="compile")
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=3, help="measured in each turn")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--beside", help="the program bench_train, to take turns with")
    parser.add_argument("--json", type=pathlib.Path, help='also write {"rows": [...]}')
    args = parser.parse_args()
    if min(args.steps, args.turns, args.micro_batch, args.threads) < 1:
        parser.error("--steps, --turns, --micro-batch and --threads are at least 1")
    # Libraries read this variable when they are loaded, before set_num_threads().
    if os.environ.get("OMP_NUM_THREADS") != str(args.threads):
        os.environ["OMP_NUM_THREADS"] = str(args.threads)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    row = measure(args)
    print(json.dumps(row), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"rows": [row]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
