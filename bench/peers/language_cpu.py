#!/usr/bin/env python3
"""PyTorch's speed of a training step on this machine's CPU, for comparison with bench_train's.

    python3 -m venv venv && venv/bin/pip install torch transformers
    venv/bin/python language_cpu.py [--model gpt2-124m] [--threads N] [--json FILE]

Both sides must be measured in one session on an otherwise idle machine. torch.compile also needs a
C++ compiler. A step is forward, backward, clipping at 1.0, AdamW (fused, PyTorch's fastest on a
CPU) and clearing the gradients, on transformers' model of bench_train's preset, with the vocabulary
padded as in Shale. Attention is PyTorch's fused kernel unless --attention says otherwise.

Each row is measured in its own process, so that peak memory is that row's, and failures do not
affect other rows. Rows go to standard output as JSON, one per line:

  impl, model, mode, dtype, threads, seq_len, micro_batch, params
  step_ms         median over the steps; step_ms_min the fastest
  tokens_per_s    from the median
  gflops          6 N + 6 L C T FLOP per token (causal attention counted once), from the median
  first_step_ms   includes compilation
  cpu_share       processor time / (threads x wall time) over the measured steps: well below 1 if
                  other programs used the machine; such a row is invalid
  peak_bytes      of the process, including about 0.5 GB of the framework itself
  loss            after the last step; very different losses mean different work
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

MODES = ("eager", "compile")
DTYPES = ("fp32", "bf16")  # bf16: f32 parameters with autocast
MODELS = ("gpt2-124m", "llama-160m", "smollm2-135m")


def build(name, attention):
    """Returns the model, its number of layers and the total width of all heads."""
    from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

    if name == "gpt2-124m":
        config = GPT2Config(vocab_size=50304, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    elif name == "llama-160m":
        config = LlamaConfig(vocab_size=32000, hidden_size=768, intermediate_size=3072,
                             num_hidden_layers=12, num_attention_heads=12, rms_norm_eps=1e-6,
                             tie_word_embeddings=False)
    else:
        config = LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536,
                             num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                             rms_norm_eps=1e-5, tie_word_embeddings=True)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return model.train(), config.num_hidden_layers, config.hidden_size


def measure(args, mode, dtype):
    import contextlib
    import resource
    import statistics

    import torch
    import torch.nn.functional as F

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model, layers, width = build(args.model, args.attention)
    vocab = model.config.vocab_size
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)
    params = sum(p.numel() for p in model.parameters())
    ids = torch.randint(0, vocab, (args.micro_batch, args.seq_len + 1))
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def forward():
        cast = (torch.autocast("cpu", dtype=torch.bfloat16) if dtype == "bf16"
                else contextlib.nullcontext())
        with cast:
            logits = model(input_ids=inputs, use_cache=False).logits
        return F.cross_entropy(logits.float().view(-1, vocab), targets.view(-1))

    loss_fn = torch.compile(forward) if mode == "compile" else forward

    def step():
        start = time.perf_counter()
        loss = loss_fn()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        return (time.perf_counter() - start) * 1e3, value

    first_ms, _ = step()
    for _ in range(args.warmup - 1):
        step()
    wall, cpu = time.perf_counter(), time.process_time()
    times, losses = zip(*(step() for _ in range(args.steps)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    median = statistics.median(times)
    count = args.micro_batch * args.seq_len
    flop = 6 * params + 6 * layers * width * args.seq_len
    return {
        "impl": f"pytorch-{torch.__version__.split('+')[0]}", "model": args.model, "mode": mode,
        "dtype": dtype, "threads": args.threads, "seq_len": args.seq_len,
        "micro_batch": args.micro_batch, "params": params, "step_ms": round(median, 1),
        "step_ms_min": round(min(times), 1), "tokens_per_s": round(count / median * 1e3, 1),
        "gflops": round(flop * count / median / 1e6, 1), "first_step_ms": round(first_ms, 1),
        "cpu_share": round(cpu / wall / args.threads, 3),
        # ru_maxrss is in KiB on Linux.
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "loss": round(losses[-1], 5),
    }


def in_child(argv, args, mode, dtype):
    command = [sys.executable, __file__, *argv, "--row", f"{mode},{dtype}"]
    # Libraries read this variable when they are loaded, before set_num_threads().
    env = os.environ | {"OMP_NUM_THREADS": str(args.threads), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout.strip().splitlines()[-1])
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {"mode": mode, "dtype": dtype, "error": f"exit {done.returncode}: {last}"[:300]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=MODELS, default=MODELS[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=10, help="measured")
    parser.add_argument("--warmup", type=int, default=3, help="not measured")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    parser.add_argument("--json", type=pathlib.Path, help='also write {"rows": [...]}')
    parser.add_argument("--row", help=argparse.SUPPRESS)
    args = parser.parse_args()

    if args.row:
        print(json.dumps(measure(args, *args.row.split(","))))
        return
    for given, known in ((args.modes, MODES), (args.dtypes, DTYPES)):
        if unknown := set(given.split(",")) - set(known):
            parser.error(f"{', '.join(sorted(unknown))}: expected some of {', '.join(known)}")
    if args.warmup < 1 or args.steps < 1:
        parser.error("--warmup and --steps are at least 1")
    rows = []
    for dtype in args.dtypes.split(","):
        for mode in args.modes.split(","):
            rows.append(in_child(sys.argv[1:], args, mode, dtype))
            print(json.dumps(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    if any("error" in row for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
