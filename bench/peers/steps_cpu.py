#!/usr/bin/env python3
"""PyTorch's training steps on this machine's CPU, beside bench_train's.

    python3 -m venv venv && venv/bin/pip install torch torchvision transformers
    best="venv/bin/python steps_cpu.py --modes best --turns 3 --beside bench_train"
    $best --models gpt2-124m,llama-160m,llama-160m-lora
    $best --models qwen3-0.6b,olmoe-1b-7b --layers 1
    $best --models vit-b16,resnet18,resnet50,dit-b2 --micro-batch 8
    $best --models gpt2-124m-generate,llama-160m-generate --micro-batch 1

These four commands measure every family. A step is forward, backward, clipping at 1.0, AdamW
(fused, PyTorch's fastest on a CPU) and clearing the gradients, on the model of transformers or
torchvision that bench_train's preset is, with the same padded vocabulary. The diffusion transformer
is written here, as torchvision has none. Attention is PyTorch's fused kernel. bf16 is autocast over
f32 parameters. Residual networks and their images are channels_last. Modes: eager; compile:
torch.compile; best: torch.compile(mode="max-autotune") with tcmalloc, if it is installed, and
threads bound to cores. --beside runs bench_train after each of --turns turns of PyTorch's steps, so
that both sides meet the same machine; it must be idle otherwise. torch.compile needs a C++
compiler.

NAME-lora trains adapters of rank 16 of all linear layers but the last. Their frozen weights are in
the dtype of the row. A step of NAME-generate is a greedy generation of --seq-len tokens after a
prompt of 16, with a static cache and weights in the dtype of the row; mode best also freezes the
weights (torch._inductor.config.freezing).

Each row is measured in its own process. Rows go to standard output as JSON, one per line:

  impl, model, mode, dtype, threads, seq_len or pixels, micro_batch, params
  step_ms         median over the steps; step_ms_min the fastest
  tokens_per_s, images_per_s  from the median; with --beside also ours_tokens_per_s
  first_step_ms   includes compilation
  cpu_share       processor time / (threads x wall time) over the measured steps: well below 1 if
                  other programs used the machine; such a row is invalid
  peak_bytes      of the process, including about 0.5 GB of the framework itself
  loss            after the last step; very different losses mean different work
  ours_ms, ours_min_ms  with --beside: median and fastest of bench_train's steps
  ratio, ratio_min      with --beside: speed of our step relative to PyTorch's, by these two
  gemm_share      with --beside: share of our step that its GEMMs and convolutions take alone; null
                  if oneDNN lacks one of them
  costliest, costliest_share  with --beside: the part that adds most to the time that these take
                  alone, and its share of our step: "phase kernel", or a GEMM or convolution, with
                  the time by which it is slower in the step
"""

import argparse
import collections
import contextlib
import ctypes.util
import functools
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


TEXT = {
    "gpt2-124m": ("GPT2Config", dict(
        vocab_size=50304, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)),
    "llama-160m": ("LlamaConfig", dict(
        vocab_size=32000, hidden_size=768, intermediate_size=3072, num_hidden_layers=12,
        num_attention_heads=12, rms_norm_eps=1e-6, tie_word_embeddings=False)),
    "smollm2-135m": ("LlamaConfig", dict(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, rms_norm_eps=1e-5,
        tie_word_embeddings=True)),
    "qwen3-0.6b": ("Qwen3Config", dict(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, rms_norm_eps=1e-6,
        rope_theta=1e6, tie_word_embeddings=True)),
    "olmoe-1b-7b": ("OlmoeConfig", dict(
        vocab_size=50304, hidden_size=2048, intermediate_size=1024, num_hidden_layers=16,
        num_attention_heads=16, num_experts=64, num_experts_per_tok=8, rms_norm_eps=1e-5,
        rope_theta=1e4, tie_word_embeddings=False)),
}
LORA_RANK = 16
PROMPT = 16  # tokens of the prompt in a step of NAME-generate


def language_model(name, args):
    import transformers

    kind, sizes = TEXT[name]
    if args.layers:
        sizes = sizes | {"n_layer" if kind == "GPT2Config" else "num_hidden_layers": args.layers}
    config = getattr(transformers, kind)(**sizes)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")


def language(name, args, adapt=lambda model, args: None):
    import torch
    import torch.nn.functional as F

    model = language_model(name, args)
    adapt(model, args)
    vocab = model.config.vocab_size
    ids = torch.randint(0, vocab, (args.micro_batch, args.seq_len + 1))
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def loss():
        logits = model(input_ids=inputs, use_cache=False).logits
        return F.cross_entropy(logits.float().view(-1, vocab), targets.view(-1))

    return trained(model, loss, args)


def add_adapters(model, args):
    import torch
    from torch import nn

    class Lora(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base
            self.a = nn.Linear(base.in_features, LORA_RANK, bias=False)
            self.b = nn.Linear(LORA_RANK, base.out_features, bias=False)
            nn.init.zeros_(self.b.weight)

        def forward(self, x):
            return self.base(x) + 2 * self.b(self.a(x))  # alpha is twice the rank

    model.requires_grad_(False)
    model.to(torch.bfloat16 if args.dtype == "bf16" else torch.float32)
    for parent in list(model.model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, Lora(child))


def generation(name, args):
    import torch
    import torch._inductor.config
    import transformers

    model = language_model(name, args).eval()
    model.to(torch.bfloat16 if args.dtype == "bf16" else torch.float32)
    model.generation_config.eos_token_id = None  # all texts have the same length
    # generate() compiles the steps after the prompt itself, but on a CPU only if told so.
    config = transformers.CompileConfig(mode=compile_mode(args) or "default")
    config._compile_all_devices = True
    torch._inductor.config.freezing = args.mode == "best"
    prompt = torch.randint(0, model.config.vocab_size, (args.micro_batch, PROMPT))

    def step():
        model.generate(prompt, attention_mask=torch.ones_like(prompt), pad_token_id=0,
                       max_new_tokens=args.seq_len, do_sample=False,
                       cache_implementation="static", compile_config=config,
                       disable_compile=args.mode == "eager")

    return model, step


def classifier(name, args):
    import torch
    import torch.nn.functional as F
    import torchvision

    layout = torch.channels_last if name.startswith("resnet") else torch.contiguous_format
    model = getattr(torchvision.models, name)(weights=None).to(memory_format=layout)
    images = torch.rand(args.micro_batch, 3, args.pixels, args.pixels) - 0.5
    images = images.contiguous(memory_format=layout)
    labels = torch.randint(0, 1000, (args.micro_batch,))
    return trained(model, lambda: F.cross_entropy(model(images).float(), labels), args)


def diffusion(layers, width, heads, args):
    """Trains a diffusion transformer (arXiv:2212.09748) by rectified flow on latents of 32 x 32 x 4
    in patches of 2 x 2, with fixed positions."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    def norm():
        return nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)

    def modulated(x, shift, scale):
        return x * (1 + scale) + shift

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = norm(), norm()
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.modulation = nn.Linear(width, 6 * width)

        def attend(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v)
            return self.proj(y.transpose(1, 2).flatten(2))

        def forward(self, x, condition):
            m = self.modulation(F.silu(condition)).unsqueeze(1).chunk(6, dim=-1)
            x = x + m[2] * self.attend(modulated(self.norm1(x), m[0], m[1]))
            hidden = F.gelu(self.fc1(modulated(self.norm2(x), m[3], m[4])), approximate="tanh")
            return x + m[5] * self.fc2(hidden)

    class Dit(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(4, width, 2, stride=2)
            self.register_buffer("positions", torch.randn(1, (args.latents // 2) ** 2, width))
            self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
            self.classes = nn.Embedding(1001, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = norm()
            self.modulation = nn.Linear(width, 2 * width)
            self.linear = nn.Linear(width, 16)

        def forward(self, x, times, labels):
            edge = args.latents // 2
            x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
            condition = self.time(times) + self.classes(labels)
            for block in self.blocks:
                x = block(x, condition)
            m = self.modulation(F.silu(condition)).unsqueeze(1).chunk(2, dim=-1)
            patches = self.linear(modulated(self.norm(x), *m))
            pixels = patches.view(-1, edge, edge, 2, 2, 4).permute(0, 5, 1, 3, 2, 4)
            return pixels.reshape(-1, 4, args.latents, args.latents)

    model = Dit()
    # These layers are zero at the start of training.
    for layer in [model.linear, model.modulation, *(block.modulation for block in model.blocks)]:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    images, noise = torch.randn(2, args.micro_batch, 4, args.latents, args.latents)
    times = torch.rand(args.micro_batch, 1, 1, 1)
    features = torch.randn(args.micro_batch, 256)  # sinusoids of the data loader
    labels = torch.randint(0, 1000, (args.micro_batch,))

    def loss():
        noisy = (1 - times) * images + times * noise
        return F.mse_loss(model(noisy, features, labels).float(), noise - images)

    return trained(model, loss, args)


def compile_mode(args):
    return "max-autotune" if args.mode == "best" else None


def trained(model, loss_of, args):
    """Returns the model and a training step, which returns the loss."""
    import torch

    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=True)

    def forward():
        with (torch.autocast("cpu", dtype=torch.bfloat16) if args.dtype == "bf16"
              else contextlib.nullcontext()):
            return loss_of()

    if args.mode != "eager":
        forward = torch.compile(forward, mode=compile_mode(args))

    def step():
        loss = forward()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return model, step


IMAGES = {name: functools.partial(classifier, function) for name, function in
          {"vit-b16": "vit_b_16", "resnet18": "resnet18", "resnet50": "resnet50"}.items()}
LATENTS = {"dit-s2": functools.partial(diffusion, 12, 384, 6),
           "dit-b2": functools.partial(diffusion, 12, 768, 12)}
# Functions of the arguments that return a model and its step.
ROWS = ({name: functools.partial(language, name) for name in TEXT} | IMAGES | LATENTS
        | {f"{name}-lora": functools.partial(language, name, adapt=add_adapters)
           for name in ("llama-160m", "smollm2-135m", "qwen3-0.6b")}
        | {f"{name}-generate": functools.partial(generation, name) for name in TEXT})


def ours(args):
    """Returns bench_train's rows of a step and its parts."""
    name = args.model.removesuffix("-lora").removesuffix("-generate")
    sizes = {"--seq-len": args.seq_len}
    if name in IMAGES:
        sizes = {"--pixels": args.pixels}
    elif name in LATENTS:
        sizes = {"--pixels": args.latents}
    if args.layers:
        sizes["--layers"] = args.layers
    if args.model.endswith("-lora"):
        sizes["--lora-rank"] = LORA_RANK
    if args.model.endswith("-generate"):
        sizes |= {"--seq-len": PROMPT, "--generate": args.seq_len}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "ours.json"
        # LD_PRELOAD (the allocator) and OMP_PROC_BIND are for PyTorch only; users do not set them.
        env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "OMP_PROC_BIND")}
        subprocess.run([args.beside, "--model", name, "--dtype", args.dtype, "--micro-batch",
                        str(args.micro_batch), "--threads", str(args.threads), "--warmup", "2",
                        "--steps", str(args.steps), "--json", str(file),
                        *(str(word) for pair in sizes.items() for word in pair)],
                       check=True, stdout=subprocess.DEVNULL, env=env)
        return json.loads(file.read_text())["rows"]


def beside_row(turns, theirs, count, unit):
    """Returns the fields of a row that compare with bench_train, from its rows of each turn."""
    steps = [next(row for row in rows if "step_ms" in row) for rows in turns]
    median = statistics.median(step["step_ms"] for step in steps)
    fastest = min(step["step_ms_min"] for step in steps)
    parts = collections.Counter()
    for step, rows in zip(steps, turns):
        for row in rows:
            if row["kind"] == "part" and not row["name"].startswith(("gemm", "conv")):
                parts[f"{row['phase']} {row['name']}"] += row["share"] / len(turns)
            elif row["kind"] == "gemm" and row["vendor_ms"] > 0:
                slower = row["ms"] - row["vendor_ms"]
                parts[row["name"]] += slower / step["step_ms"] / len(turns)
    name, share = parts.most_common(1)[0]
    shares = [step["floor_share"] for step in steps if "floor_share" in step]
    return {"ours_ms": round(median, 1), "ours_min_ms": round(fastest, 1),
            f"ours_{unit}_per_s": round(count / median * 1e3, 2),
            "ratio": round(statistics.median(theirs) / median, 3),
            "ratio_min": round(min(theirs) / fastest, 3),
            "gemm_share": round(statistics.median(shares), 3) if shares else None,
            "costliest": name, "costliest_share": round(share, 3)}


def measure(args):
    import torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model, step = ROWS[args.model](args)

    def timed():
        start = time.perf_counter()
        value = step()
        return (time.perf_counter() - start) * 1e3, value

    first_ms, _ = timed()
    for _ in range(args.warmup - 1):
        timed()
    times, beside, wall, cpu = [], [], 0, 0
    for _ in range(args.turns):
        wall_before, cpu_before = time.perf_counter(), time.process_time()
        for _ in range(args.steps):
            ms, loss = timed()
            times.append(ms)
        wall += time.perf_counter() - wall_before
        cpu += time.process_time() - cpu_before
        if args.beside:
            beside.append(ours(args))
    median = statistics.median(times)
    size, unit, count = "seq_len", "tokens", args.micro_batch * args.seq_len
    if args.model in IMAGES | LATENTS:
        size, unit, count = "pixels", "images", args.micro_batch
    row = {"impl": f"pytorch-{torch.__version__.split('+')[0]}", "model": args.model,
           "mode": args.mode, "dtype": args.dtype, "threads": args.threads,
           size: args.latents if args.model in LATENTS else getattr(args, size),
           "micro_batch": args.micro_batch, "params": sum(p.numel() for p in model.parameters()),
           "step_ms": round(median, 1), "step_ms_min": round(min(times), 1),
           f"{unit}_per_s": round(count / median * 1e3, 2), "first_step_ms": round(first_ms, 1),
           "cpu_share": round(cpu / wall / args.threads, 3),
           # ru_maxrss is in KiB on Linux.
           "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if loss is not None:
        row["loss"] = round(loss, 5)
    return row | (beside_row(beside, times, count, unit) if beside else {})


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
    known = {"models": ROWS, "modes": MODES, "dtypes": DTYPES}
    parser.add_argument("--models", default="gpt2-124m", help=", ".join(known["models"]))
    parser.add_argument("--modes", default="compile", help=", ".join(MODES))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--layers", type=int, default=0, help="0: the model's")
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--latents", type=int, default=32, help="pixels of the images of dit-*")
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5, help="measured in each turn")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=3, help="steps that are not measured")
    parser.add_argument("--beside", help="the program bench_train, to take turns with")
    parser.add_argument("--json", type=pathlib.Path, help='also write {"rows": [...]}')
    parser.add_argument("--row", help=argparse.SUPPRESS)
    args = parser.parse_args()

    if args.row:
        args.model, args.mode, args.dtype = args.row.split(",")
        print(json.dumps(measure(args)))
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
