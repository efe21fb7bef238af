#!/usr/bin/env python3
"""PyTorch's speed of a GPT-2 training step on one GPU, for comparison with Shale's.

    python3 gpt2_gpu.py [--model gpt2-124m] [--seq-len 1024] [--micro-batch 16]
                        [--global-batch 128] [--modes eager,compile] [--json FILE [--resume]]

Requires only PyTorch: the script contains the model, GPT-2 (learned positions, pre-norm, GELU in
its tanh form, tied embedding, no dropout) with the vocabulary padded to 50304 and
scaled_dot_product_attention. gpu_steps.py describes steps and rows. Modes:

  eager           the model as written
  compile         torch.compile of the model
  compile-cudnn   the same with cuDNN's attention; in other modes PyTorch chooses a backend

Rows also have seq_len and

  tokens_per_s    from the median
  tflops          6 N + 6 L C T FLOP per token (causal attention counted once), from the median

--device cpu --layers 1 --width 64 --heads 1 tries the script without a GPU.
"""

import argparse

import torch
import torch.nn.functional as F
from gpu_steps import Script, Work, add_arguments, check, run
from torch import nn
from transformer_block import Block

MODES = ("eager", "compile", "compile-cudnn")
# Number of layers, width, heads.
MODELS = {"gpt2-124m": (12, 768, 12), "gpt2-1558m": (48, 1600, 25)}


class GPT2(nn.Module):
    def __init__(self, vocab, length, layers, width, heads):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            Block(width, heads, causal=True, gelu="tanh") for _ in range(layers))
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


def fields(args):
    is_model = (args.layers, args.width, args.heads) == MODELS[args.model]
    return {"model": args.model if is_model else "", "seq_len": args.seq_len}


def make_work(args, mode):
    model = GPT2(args.vocab, args.seq_len, args.layers, args.width, args.heads).to(args.device)
    ids = torch.randint(0, args.vocab, (args.micro_batch, args.seq_len + 1), device=args.device)
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    forward = model if mode == "eager" else torch.compile(model)
    if mode == "compile-cudnn":
        only_cudnn_attention()

    def rates(median_ms, params):
        count = args.global_batch * args.seq_len
        flop = 6 * params + 6 * args.layers * args.width * args.seq_len
        return {"tokens_per_s": round(count / median_ms * 1e3, 1),
                "tflops": round(flop * count / median_ms / 1e9, 2)}

    return Work(model, lambda: forward(inputs, targets), rates)


SCRIPT = Script("peer_gpt2", MODES, fields, make_work)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=MODELS, default="gpt2-124m")
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--layers", type=int, help="instead of the model's")
    parser.add_argument("--width", type=int)
    parser.add_argument("--heads", type=int)
    parser.add_argument("--vocab", type=int, default=50304)
    add_arguments(parser, SCRIPT, micro_batch=16, global_batch_of="sequences")
    args = parser.parse_args()
    layers, width, heads = MODELS[args.model]
    args.layers, args.width = args.layers or layers, args.width or width
    args.heads = args.heads or heads
    check(args, SCRIPT)
    run(args, SCRIPT)


if __name__ == "__main__":
    main()
