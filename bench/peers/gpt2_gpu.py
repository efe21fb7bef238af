#!/usr/bin/env python3
"""PyTorch's speed at a GPT-2 training step on one GPU, to set beside Shale's.

    python3 gpt2_gpu.py [--model gpt2-124m] [--seq-len 1024] [--micro-batch 16]
                        [--global-batch 128] [--modes eager,compile] [--json FILE]

PyTorch is all it needs: the model is written out here, as GPT-2 is (learned positions, norms before,
GELU in its tanh form, tied embedding, no dropout), with the vocabulary padded to 50304. A step is
forward and backward of as many micro-batches as the global batch has, clipping at 1.0, fused AdamW
and clearing the gradients, under bf16 autocast with f32 parameters; attention is
scaled_dot_product_attention, which picks its backend itself. Each row is measured in a process of its
own. Rows go to standard output, one a line:

  impl, mode, model, dtype, seq_len, micro_batch, global_batch, params
  step_ms         median over the steps, by device events; step_ms_min the fastest
  tokens_per_s    from the median
  tflops          6 N + 6 L C T FLOP per token (causal attention counted once), from the median
  first_step_ms   includes compilation
  peak_bytes      device memory that PyTorch has held
  loss            after the last step: a row whose loss differs much is not doing the same work

--device cpu --layers 1 --width 64 --heads 1 tries the script where there is no GPU.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from gpu_timing import require_gpu, write
from torch import nn

MODES = ("eager", "compile")
MODELS = {"gpt2-124m": (12, 768, 12), "gpt2-1558m": (48, 1600, 25)}  # layers, width, heads


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(B, T, 3, self.heads, C // self.heads).unbind(2)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2),
                                           v.transpose(1, 2), is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, vocab, length, layers, width, heads):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.apply(self.init)

    @staticmethod
    def init(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def measure(args, mode):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    on_gpu = args.device == "cuda"
    model = GPT2(args.vocab, args.seq_len, args.layers, args.width, args.heads).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)
    params = sum(p.numel() for p in model.parameters())
    ids = torch.randint(0, args.vocab, (args.micro_batch, args.seq_len + 1), device=args.device)
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    compiled = torch.compile(model) if mode == "compile" else model

    micro_batches = args.global_batch // args.micro_batch

    def step():
        for _ in range(micro_batches):
            with torch.autocast(args.device, dtype=torch.bfloat16):
                loss = compiled(inputs, targets)
            (loss / micro_batches).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    def timed():
        if not on_gpu:
            start = time.perf_counter()
            loss = step()
            return (time.perf_counter() - start) * 1e3, loss
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        loss = step()
        end.record()
        end.synchronize()
        return start.elapsed_time(end), loss

    first_ms, _ = timed()
    for _ in range(args.warmup - 1):
        step()
    times, losses = zip(*(timed() for _ in range(args.steps)))
    median = statistics.median(times)
    count = args.global_batch * args.seq_len
    flop = 6 * params + 6 * args.layers * args.width * args.seq_len
    return {
        "impl": f"pytorch-{torch.__version__.split('+')[0]}", "mode": mode, "dtype": "bf16",
        "model": args.model if (args.layers, args.width, args.heads) == MODELS[args.model] else "",
        "device": torch.cuda.get_device_name() if on_gpu else "cpu", "threads": 1,
        "seq_len": args.seq_len, "micro_batch": args.micro_batch,
        "global_batch": args.global_batch, "params": params,
        "step_ms": round(median, 3), "step_ms_min": round(min(times), 3),
        "tokens_per_s": round(count / median * 1e3, 1),
        "tflops": round(flop * count / median / 1e9, 2), "first_step_ms": round(first_ms, 1),
        "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else 0,
        "loss": round(losses[-1].item(), 5),
    }


def in_child(argv, mode):
    done = subprocess.run([sys.executable, __file__, *argv, "--row", mode], capture_output=True,
                          text=True)
    if done.returncode == 0:
        return json.loads(done.stdout.strip().splitlines()[-1])
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {"mode": mode, "dtype": "bf16", "error": f"exit {done.returncode}: {last}"[:300]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=MODELS, default="gpt2-124m")
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--global-batch", type=int, help="sequences a step; default: micro-batch")
    parser.add_argument("--steps", type=int, default=30, help="measured")
    parser.add_argument("--warmup", type=int, default=5, help="not measured")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--layers", type=int, help="instead of the model's")
    parser.add_argument("--width", type=int)
    parser.add_argument("--heads", type=int)
    parser.add_argument("--vocab", type=int, default=50304)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=pathlib.Path, help='also write {"rows": [...]}')
    parser.add_argument("--row", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.global_batch = args.global_batch or args.micro_batch
    if args.global_batch % args.micro_batch:
        parser.error("--global-batch is a multiple of --micro-batch")
    layers, width, heads = MODELS[args.model]
    args.layers, args.width = args.layers or layers, args.width or width
    args.heads = args.heads or heads
    require_gpu(args.device)
    if args.row:
        print(json.dumps(measure(args, args.row)))
        return
    modes = args.modes.split(",")
    if unknown := set(modes) - set(MODES):
        parser.error(f"{', '.join(sorted(unknown))}: want some of {', '.join(MODES)}")
    if args.warmup < 1 or args.steps < 1:
        parser.error("--warmup and --steps are at least 1")
    rows = []
    for mode in modes:
        rows.append(in_child(sys.argv[1:], mode))
        print(json.dumps(rows[-1]), flush=True)
    write(args.json, "peer_gpt2", args.device, rows)
    if any("error" in row for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
