#!/usr/bin/env python3
"""PyTorch's speed at a GPT-2 training step on one GPU, to set beside Shale's.

    python3 gpt2_gpu.py [--model gpt2-124m] [--seq-len 1024] [--micro-batch 16]
                        [--global-batch 128] [--modes eager,compile] [--json FILE [--resume]]

PyTorch is all it needs: the model is written out here, as GPT-2 is (learned positions, norms
before, GELU in its tanh form, tied embedding, no dropout), with the vocabulary padded to 50304. A
step is forward and backward of as many micro-batches as the global batch has, clipping at 1.0,
fused AdamW and clearing the gradients, under bf16 autocast with f32 parameters; attention is
scaled_dot_product_attention. A mode, each measured in a process of its own, is one of

  eager           PyTorch runs the model as it is written
  compile         torch.compile of the model
  compile-cudnn   the same with cuDNN's attention; the others let PyTorch pick a backend

Rows go to standard output, one a line, and to FILE as they come; --resume goes on with a file that
was cut. A mode that fails has a row with its error:

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
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from gpu_timing import machine, require_gpu, summary
from rows_file import RowsFile
from supervisor import ANOTHER, Reporter, supervise
from torch import nn

USAGE = 64  # exit code of Shale's programs for arguments that make no sense
MODES = ("eager", "compile", "compile-cudnn")
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


def only_cudnn_attention():
    torch.backends.cuda.enable_cudnn_sdp(True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_math_sdp(False)


def fields(args, mode):
    """What a row tells before anything is measured."""
    is_model = (args.layers, args.width, args.heads) == MODELS[args.model]
    return {"impl": f"pytorch-{torch.__version__.split('+')[0]}", "mode": mode, "dtype": "bf16",
            "model": args.model if is_model else "", "seq_len": args.seq_len,
            "micro_batch": args.micro_batch, "global_batch": args.global_batch}


def measure(args, mode):
    """Returns what a row has beyond its fields()."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    on_gpu = args.device == "cuda"
    model = GPT2(args.vocab, args.seq_len, args.layers, args.width, args.heads).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)
    params = sum(p.numel() for p in model.parameters())
    ids = torch.randint(0, args.vocab, (args.micro_batch, args.seq_len + 1), device=args.device)
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    compiled = model if mode == "eager" else torch.compile(model)
    if mode == "compile-cudnn":
        only_cudnn_attention()

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
        "device": torch.cuda.get_device_name() if on_gpu else "cpu", "threads": 1,
        "params": params,
        "step_ms": round(median, 3), "step_ms_min": round(min(times), 3),
        "tokens_per_s": round(count / median * 1e3, 1),
        "tflops": round(flop * count / median / 1e9, 2), "first_step_ms": round(first_ms, 1),
        "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else 0,
        "loss": round(losses[-1].item(), 5),
    }


def work(args):
    """The worker: measures the next mode that is not there yet. Returns its exit code."""
    require_gpu(args.device)
    reporter = Reporter(args.worker)
    there, _ = reporter.done_before(machine(args.device))
    left = [mode for mode in args.modes.split(",") if (mode,) not in there]
    for mode in left[:1]:
        row = fields(args, mode)
        reporter.say(begin=row)
        try:
            reporter.say(row={**row, **measure(args, mode)})
        except Exception as error:  # out of memory, or no such backend
            reporter.say(row={**row, "error": summary(error)})
    if len(left) > 1:
        return ANOTHER
    reporter.say(end=True)
    return 0


def usage_error(message):
    print(f"error: {message}", file=sys.stderr)
    sys.exit(USAGE)


def parse_arguments():
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
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--resume", action="store_true", help="go on with FILE if it was cut")
    parser.add_argument("--row-time", type=float, default=400, metavar="SECONDS",
                        help="after which a mode counts as hung")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.global_batch = args.global_batch or args.micro_batch
    layers, width, heads = MODELS[args.model]
    args.layers, args.width = args.layers or layers, args.width or width
    args.heads = args.heads or heads
    check(args)
    return args


def check(args):
    if args.global_batch % args.micro_batch:
        usage_error(f"--global-batch: {args.global_batch}: want a multiple of --micro-batch, "
                    f"{args.micro_batch}")
    if unknown := set(args.modes.split(",")) - set(MODES):
        usage_error(f"--modes: {', '.join(sorted(unknown))}: want some of {', '.join(MODES)}")
    if args.warmup < 1 or args.steps < 1:
        usage_error("--warmup and --steps: want at least 1")


def main():
    args = parse_arguments()
    if args.worker is not None:
        sys.exit(work(args))
    not_of_work = ("json", "resume", "row_time", "worker", "modes")
    options = {key: value for key, value in vars(args).items() if key not in not_of_work}
    rows = RowsFile(args.json, "peer_gpt2", options, key=("mode",))
    code = supervise(sys.argv, rows, args.resume, args.row_time)
    if code == 0 and not any("step_ms" in row for row in rows.rows):
        print("error: no mode could be measured", file=sys.stderr)
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
