#!/usr/bin/env python3
"""PyTorch's training steps on this machine's CPU, beside bench_train's.

    python3 -m venv venv && venv/bin/pip install torch torchvision transformers
    venv/bin/python steps_cpu.py --models gpt2-124m,vit-b16 --beside build/release/bin/bench_train

A step is forward, backward, clipping at 1.0, AdamW (fused, PyTorch's fastest on a CPU) and clearing
the gradients, on the model of transformers or torchvision that bench_train's preset is, with the
same padded vocabulary. Attention is PyTorch's fused kernel. bf16 is autocast over f32 parameters.
Residual networks and their images are channels_last. Modes: eager; compile: torch.compile; best:
torch.compile(mode="max-autotune") with tcmalloc, if it is installed, and threads bound to cores.
--beside runs bench_train after each of --turns turns of PyTorch's steps, so that both sides meet
the same machine; it must be idle otherwise. torch.compile needs a C++ compiler.

Each row is measured in its own process. Rows go to standard output as JSON, one per line:

  impl, model, mode, dtype, threads, seq_len or pixels, micro_batch, params
  step_ms         median over the steps; step_ms_min the fastest
  tokens_per_s, images_per_s  from the median
  first_step_ms   includes compilation
  cpu_share       processor time / (threads x wall time) over the measured steps: well below 1 if
                  other programs used the machine; such a row is invalid
  peak_bytes      of the process, including about 0.5 GB of the framework itself
  loss            after the last step; very different losses mean different work
  ours_ms, ours_min_ms  with --beside: median and fastest of bench_train's steps
  ratio, ratio_min      with --beside: speed of our step relative to PyTorch's, by these two
  gemm_share      with --beside: share of our step that its GEMMs and convolutions take alone
"""

import argparse
import contextlib
import ctypes.util
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

MODES = ("eager", "compile", "best")
DTYPES = ("fp32", "bf16")


def language(kind, **sizes):
    """Returns a function that builds a model of transformers: the class of its configuration,
    then its sizes."""
    def build(args):
        import torch
        import torch.nn.functional as F
        import transformers

        if args.layers:
            sizes["n_layer" if kind == "GPT2Config" else "num_hidden_layers"] = args.layers
        config = getattr(transformers, kind)(**sizes)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
        ids = torch.randint(0, config.vocab_size, (args.micro_batch, args.seq_len + 1))
        inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

        def loss():
            logits = model(input_ids=inputs, use_cache=False).logits
            return F.cross_entropy(logits.float().view(-1, config.vocab_size), targets.view(-1))

        return model.train(), loss

    return build


def classifier(name):
    def build(args):
        import torch
        import torch.nn.functional as F
        import torchvision

        layout = torch.channels_last if name.startswith("resnet") else torch.contiguous_format
        model = getattr(torchvision.models, name)(weights=None).to(memory_format=layout)
        images = torch.rand(args.micro_batch, 3, args.pixels, args.pixels) - 0.5
        images = images.contiguous(memory_format=layout)
        labels = torch.randint(0, 1000, (args.micro_batch,))
        return model.train(), lambda: F.cross_entropy(model(images).float(), labels)

    return build


TEXT = {
    "gpt2-124m": language("GPT2Config", vocab_size=50304, resid_pdrop=0.0, embd_pdrop=0.0,
                          attn_pdrop=0.0),
    "llama-160m": language("LlamaConfig", vocab_size=32000, hidden_size=768,
                           intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
                           rms_norm_eps=1e-6, tie_word_embeddings=False),
    "smollm2-135m": language("LlamaConfig", vocab_size=49152, hidden_size=576,
                             intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
                             num_key_value_heads=3, rms_norm_eps=1e-5, tie_word_embeddings=True),
    "qwen3-0.6b": language("Qwen3Config", vocab_size=151936, hidden_size=1024,
                           intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
                           num_key_value_heads=8, head_dim=128, rms_norm_eps=1e-6,
                           rope_theta=1e6, tie_word_embeddings=True),
    "olmoe-1b-7b": language("OlmoeConfig", vocab_size=50304, hidden_size=2048,
                            intermediate_size=1024, num_hidden_layers=16, num_attention_heads=16,
                            num_experts=64, num_experts_per_tok=8, rms_norm_eps=1e-5,
                            rope_theta=1e4, tie_word_embeddings=False),
}
IMAGES = {"vit-b16": classifier("vit_b_16"), "resnet18": classifier("resnet18"),
          "resnet50": classifier("resnet50")}


def ours(args, model, dtype):
    """Returns bench_train's row of a step."""
    sizes = {"--pixels": args.pixels} if model in IMAGES else {"--seq-len": args.seq_len}
    if args.layers:
        sizes["--layers"] = args.layers
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "ours.json"
        # OMP_PROC_BIND and the allocator are PyTorch's; ours runs as users start it.
        env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "OMP_PROC_BIND")}
        subprocess.run([args.beside, "--model", model, "--dtype", dtype, "--micro-batch",
                        str(args.micro_batch), "--threads", str(args.threads), "--warmup", "2",
                        "--steps", str(args.steps), "--json", str(file),
                        *(str(word) for pair in sizes.items() for word in pair)],
                       check=True, stdout=subprocess.DEVNULL, env=env)
        rows = json.loads(file.read_text())["rows"]
    return next(row for row in rows if "step_ms" in row)


def measure(args, model_name, mode, dtype):
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model, loss_of = (TEXT | IMAGES)[model_name](args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)

    def forward():
        with (torch.autocast("cpu", dtype=torch.bfloat16) if dtype == "bf16"
              else contextlib.nullcontext()):
            return loss_of()

    if mode != "eager":
        forward = torch.compile(forward, mode="max-autotune" if mode == "best" else None)

    def step():
        start = time.perf_counter()
        loss = forward()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        return (time.perf_counter() - start) * 1e3, value

    first_ms, _ = step()
    for _ in range(args.warmup - 1):
        step()
    times, beside, wall, cpu = [], [], 0, 0
    for _ in range(args.turns):
        wall_before, cpu_before = time.perf_counter(), time.process_time()
        for _ in range(args.steps):
            ms, loss = step()
            times.append(ms)
        wall += time.perf_counter() - wall_before
        cpu += time.process_time() - cpu_before
        if args.beside:
            beside.append(ours(args, model_name, dtype))
    median = statistics.median(times)
    size, unit, count = (("pixels", "images", args.micro_batch) if model_name in IMAGES else
                         ("seq_len", "tokens", args.micro_batch * args.seq_len))
    row = {"impl": f"pytorch-{torch.__version__.split('+')[0]}", "model": model_name, "mode": mode,
           "dtype": dtype, "threads": args.threads, size: getattr(args, size),
           "micro_batch": args.micro_batch, "params": sum(p.numel() for p in model.parameters()),
           "step_ms": round(median, 1), "step_ms_min": round(min(times), 1),
           f"{unit}_per_s": round(count / median * 1e3, 2), "first_step_ms": round(first_ms, 1),
           "cpu_share": round(cpu / wall / args.threads, 3),
           # ru_maxrss is in KiB on Linux.
           "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
           "loss": round(loss, 5)}
    if beside:
        row["ours_ms"] = round(statistics.median(one["step_ms"] for one in beside), 1)
        row["ours_min_ms"] = round(min(one["step_ms_min"] for one in beside), 1)
        row["ratio"] = round(median / row["ours_ms"], 3)
        row["ratio_min"] = round(min(times) / row["ours_min_ms"], 3)
        row["gemm_share"] = round(statistics.median(one["floor_share"] for one in beside), 3)
    return row


def in_child(argv, args, name, mode, dtype):
    command = [sys.executable, __file__, *argv, "--row", f"{name},{mode},{dtype}"]
    # Libraries read this variable when they are loaded, before set_num_threads().
    env = os.environ | {"OMP_NUM_THREADS": str(args.threads), "HF_HUB_OFFLINE": "1"}
    if mode == "best":
        env["OMP_PROC_BIND"] = "true"
        if tcmalloc := ctypes.util.find_library("tcmalloc_minimal"):
            env["LD_PRELOAD"] = tcmalloc
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout.strip().splitlines()[-1])
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {"model": name, "mode": mode, "dtype": dtype,
            "error": f"exit {done.returncode}: {last}"[:300]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    known = {"models": (*TEXT, *IMAGES), "modes": MODES, "dtypes": DTYPES}
    parser.add_argument("--models", default="gpt2-124m", help=", ".join(known["models"]))
    parser.add_argument("--modes", default="compile", help=", ".join(MODES))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--layers", type=int, default=0, help="0: the model's")
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5, help="measured in each turn")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=3, help="steps that are not measured")
    parser.add_argument("--beside", help="the program bench_train, to take turns with")
    parser.add_argument("--json", type=pathlib.Path, help='also write {"rows": [...]}')
    parser.add_argument("--row", help=argparse.SUPPRESS)
    args = parser.parse_args()

    if args.row:
        print(json.dumps(measure(args, *args.row.split(","))))
        return
    for option, names in known.items():
        if unknown := set(getattr(args, option).split(",")) - set(names):
            parser.error(f"--{option} {', '.join(sorted(unknown))}: expected some of "
                         f"{', '.join(names)}")
    if min(args.warmup, args.steps, args.turns, args.micro_batch, args.threads) < 1:
        parser.error("--warmup, --steps, --turns, --micro-batch and --threads are at least 1")
    rows = []
    for name in args.models.split(","):
        for dtype in args.dtypes.split(","):
            for mode in args.modes.split(","):
                rows.append(in_child(sys.argv[1:], args, name, mode, dtype))
                print(json.dumps(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    if any("error" in row for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
