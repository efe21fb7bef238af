#!/usr/bin/env python3
"""PyTorch's kernels on this machine's GPU, to set beside those of bench_kernels --device cuda.

    python3 kernels_gpu.py [--filter REGEX] [--min-time SECONDS] [--json FILE]

Shapes, names, FLOP and bytes are those of bench_kernels, so that bench_report can put the rows side
by side; both sides must be measured in one sitting. Rivals, by operation:

  attention   scaled_dot_product_attention with each backend: flash, cudnn, efficient, math
  norms       F.layer_norm, F.rms_norm, eager and compiled, with the residual addition where Shale
              fuses it
  loss        F.cross_entropy with its backward, eager and compiled
  optimizer   torch.optim.AdamW(fused=True), f32 parameters
  matmul      torch.matmul, which is cuBLAS; a linear layer with bias and GELU, and the two of
              SwiGLU with its activation, eager and compiled
  ffn         two linear layers with GELU between, forward and backward, eager and compiled
  copy        Tensor.copy_

A rival that fails (a backend without such a head size, say) leaves a row with its error. --device
cpu --tiny tries the script where there is no GPU; its times mean nothing.
"""

import argparse
import json
import pathlib
import re
import sys

import torch
import torch._functorch.config
import torch.nn.functional as F
from gpu_timing import Clock, require_gpu, row, write
from torch.nn.attention import SDPBackend, sdpa_kernel

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}


class Cases:
    """Collects (name, impl, gflop, gbytes, make) of one dtype. make() gives (bytes, fn)."""

    def __init__(self, device, dtype, tiny):
        self.device, self.name, self.dtype, self.tiny = device, dtype, DTYPES[dtype], tiny
        self.size = self.dtype.itemsize
        self.list = []

    def add(self, name, impl, gflop, gbytes, make):
        self.list.append((f"{name}/{self.name}", impl, gflop, gbytes, make))

    def randn(self, *shape, grad=False, dtype=None):
        return torch.randn(shape, device=self.device, dtype=dtype or self.dtype,
                           requires_grad=grad)

    # Of B sequences of T tokens, H heads of D columns, causal.
    def attention(self, label, B, T, H, D):
        pairs = B * H * T * (T + 1) / 2
        tensor = B * T * H * D * self.size
        lse = B * H * T * 4
        forward = (4e-9 * pairs * D, (4 * tensor + lse) * 1e-9)
        backward = (10e-9 * pairs * D, (8 * tensor + lse) * 1e-9)
        for backend, which in BACKENDS.items():
            if backend == "math" and T > 2048:
                continue  # the T x T matrix, in memory

            def inputs(grad):
                packed = self.randn(B, T, 3, H, D).requires_grad_(grad)
                return packed, [packed[:, :, i].transpose(1, 2) for i in range(3)]

            def make_forward(which=which):
                _, (q, k, v) = inputs(False)

                def fn():
                    with sdpa_kernel(which), torch.no_grad():
                        F.scaled_dot_product_attention(q, k, v, is_causal=True)

                return 3 * tensor, fn

            def make_backward(which=which):
                packed, (q, k, v) = inputs(True)
                with sdpa_kernel(which):
                    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                d_out = torch.randn_like(out)

                def fn():
                    torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True)

                return 5 * tensor, fn

            impl = f"pytorch sdpa {backend}"
            self.add(f"attention_fwd/causal/{label}", impl, *forward, make_forward)
            self.add(f"attention_bwd/causal/{label}", impl, *backward, make_backward)

    def norms(self, label, rows, C):
        tensor, row_stats = rows * C * self.size, rows * 4
        kinds = {"layer_norm": lambda x, g, b: F.layer_norm(x, (C,), g, b, 1e-5),
                 "rms_norm": lambda x, g, b: F.rms_norm(x, (C,), g, 1e-5)}
        for kind, norm in kinds.items():
            stats = (2 if kind == "layer_norm" else 1) * row_stats

            def with_residual(x, residual, g, b, norm=norm):
                s = x + residual
                return s, norm(s, g, b)

            for mode in ("eager", "compiled"):
                plain, fused = norm, with_residual
                if mode == "compiled":
                    plain, fused = torch.compile(norm), torch.compile(with_residual)
                impl = f"pytorch {mode}"

                def make_plain(fn=plain):
                    x, g, b = self.randn(rows, C), self.randn(C), self.randn(C)

                    def run():
                        with torch.no_grad():
                            fn(x, g, b)

                    return 2 * tensor, run

                def make_fused(fn=fused):
                    x, r = self.randn(rows, C), self.randn(rows, C)
                    g, b = self.randn(C), self.randn(C)

                    def run():
                        with torch.no_grad():
                            fn(x, r, g, b)

                    return 4 * tensor, run

                # dx plus the gradient that reached s from elsewhere, dgain, dbias.
                def make_backward(fn=fused):
                    x, r = self.randn(rows, C, grad=True), self.randn(rows, C)
                    g, b = self.randn(C, grad=True), self.randn(C, grad=True)
                    s, y = fn(x, r, g, b)
                    ds, dy = torch.randn_like(s), torch.randn_like(y)
                    wanted = (x, g, b) if kind == "layer_norm" else (x, g)

                    def run():
                        torch.autograd.grad((s, y), wanted, (ds, dy), retain_graph=True)

                    return 4 * tensor, run

                self.add(f"{kind}_fwd/{label}", impl, 0, (2 * tensor + stats) * 1e-9, make_plain)
                self.add(f"{kind}_fwd/residual/{label}", impl, 0, (4 * tensor + stats) * 1e-9,
                         make_fused)
                self.add(f"{kind}_bwd/residual/{label}", impl, 0, (4 * tensor + stats) * 1e-9,
                         make_backward)

    def loss(self, label, tokens, vocab, padded):
        for mode in ("eager", "compiled"):
            # The backward is compiled with what it belongs to.
            forward = lambda logits, targets: F.cross_entropy(  # noqa: E731
                logits[:, :vocab].float(), targets, reduction="sum")
            if mode == "compiled":
                forward = torch.compile(forward)

            def make(forward=forward):
                logits = self.randn(tokens, padded, grad=True)
                targets = torch.randint(0, vocab, (tokens,), device=self.device)

                def fn():
                    torch.autograd.grad(forward(logits, targets), logits)

                return 2 * tokens * padded * self.size, fn

            self.add(f"cross_entropy/grad/{label}", f"pytorch {mode}", 0,
                     (2 * tokens * padded * self.size + 8 * tokens) * 1e-9, make)

    # f32 parameters: PyTorch has no fused step with f32 masters of bf16 parameters.
    def adamw(self, elements):
        if self.name != "fp32":
            return

        def make():
            p = torch.zeros(elements, device=self.device, requires_grad=True)
            p.grad = torch.randn_like(p)
            optimizer = torch.optim.AdamW([p], lr=1e-4, fused=True)
            return 16 * elements, optimizer.step

        self.add("adamw/flat", "pytorch fused", 0, 28 * elements * 1e-9, make)

    def matmul(self, name, m, n, k, gelu=False):
        gflop = 2e-9 * m * n * k
        gbytes = (m * k + n * k + m * n * (2 if gelu else 1)) * self.size * 1e-9

        def make():
            a, b = self.randn(m, k), self.randn(n, k)
            return (m * k + n * k) * self.size, lambda: torch.matmul(a, b.T)

        self.add(name, "pytorch matmul", gflop, gbytes, make)
        if not gelu:
            return

        def layer(x, w, b):
            h = F.linear(x, w, b)
            return h, F.gelu(h, approximate="tanh")

        for mode in ("eager", "compiled"):
            def make_layer(fn=layer if mode == "eager" else torch.compile(layer)):
                x, w, b = self.randn(m, k), self.randn(n, k), self.randn(n)

                def run():
                    with torch.no_grad():
                        fn(x, w, b)

                return (m * k + n * k) * self.size, run

            self.add(name, f"pytorch {mode}", gflop, gbytes, make_layer)

    # y = gelu(x w1^T + b1) w2^T + b2, forward and all gradients: six products.
    def ffn(self, label, tokens, d):
        if self.name == "fp32":
            return
        gflop = 48e-9 * tokens * d * d
        gbytes = (38 * tokens * d + 24 * d * d) * self.size * 1e-9

        def layer(x, w1, b1, w2, b2):
            return F.linear(F.gelu(F.linear(x, w1, b1), approximate="tanh"), w2, b2)

        for mode in ("eager", "compiled"):
            def make(fn=layer if mode == "eager" else torch.compile(layer)):
                inputs = [self.randn(tokens, d), self.randn(4 * d, d), self.randn(4 * d),
                          self.randn(d, 4 * d), self.randn(d)]
                for tensor in inputs:
                    tensor.requires_grad_()
                dy = self.randn(tokens, d)

                def run():
                    torch.autograd.grad(fn(*inputs), inputs, dy)

                return (2 * tokens * d + 8 * d * d) * self.size, run

            self.add(f"gemm/ffn/{label}", f"pytorch {mode}", gflop, gbytes, make)

    # Both products, of `hidden` columns each, which backward needs too, and their SwiGLU.
    def swiglu(self, label, tokens, C, hidden):
        name = f"gemm/forward_swiglu/{label}"
        gflop = 4e-9 * tokens * hidden * C
        gbytes = (tokens * C + 2 * hidden * C + 3 * tokens * hidden) * self.size * 1e-9
        operands = (tokens * C + 2 * hidden * C) * self.size

        def make():
            x, w = self.randn(tokens, C), self.randn(2 * hidden, C)
            return operands, lambda: torch.matmul(x, w.T)

        self.add(name, "pytorch matmul", gflop, gbytes, make)

        def layer(x, w_gate, w_up):
            gate, up = F.linear(x, w_gate), F.linear(x, w_up)
            return gate, up, F.silu(gate) * up

        for mode in ("eager", "compiled"):
            def make_layer(fn=layer if mode == "eager" else torch.compile(layer)):
                x = self.randn(tokens, C)
                w_gate, w_up = self.randn(hidden, C), self.randn(hidden, C)

                def run():
                    with torch.no_grad():
                        fn(x, w_gate, w_up)

                return operands, run

            self.add(name, f"pytorch {mode}", gflop, gbytes, make_layer)

    def copy(self, elements):
        def make():
            x, y = self.randn(elements), self.randn(elements)
            return 2 * elements * self.size, lambda: y.copy_(x)

        self.add("copy/flat", "pytorch copy_", 0, 2 * elements * self.size * 1e-9, make)

    def collect(self):
        if self.tiny:
            self.attention("d64/t1024", 1, 32, 2, 64)
            self.norms("16384x4096", 16, 64)
            self.loss("16384", 8, 100, 128)
            self.adamw(1000)
            self.matmul("gemm/forward_fc_gelu/16384", 16, 32, 8, gelu=True)
            self.ffn("d768/t8192", 16, 8)
            self.swiglu("16384", 16, 8, 24)
            self.copy(1000)
            return self.list
        tokens, C, parameters = 16384, 768, 124475904
        self.attention("16384", 16, 1024, 12, 64)
        for D in (64, 128):
            for T in (1024, 2048, 4096, 8192):
                self.attention(f"d{D}/t{T}", 16384 // T, T, 2048 // D, D)
        self.norms("16384", tokens, C)
        self.norms("16384x4096", 16384, 4096)
        self.loss("16384", tokens, 50257, 50304)
        self.adamw(parameters)
        self.copy(parameters)
        for n in (4096, 8192):
            self.matmul(f"gemm/square/{n}", n, n, n)
        for d in (768, 1600, 4096):
            self.ffn(f"d{d}/t8192", 8192, d)
        self.matmul("gemm/forward_qkv/16384", tokens, 3 * C, C)
        self.matmul("gemm/forward_attn_proj/16384", tokens, C, C)
        self.matmul("gemm/forward_fc_gelu/16384", tokens, 4 * C, C, gelu=True)
        self.matmul("gemm/forward_mlp_proj/16384", tokens, C, 4 * C)
        self.matmul("gemm/forward_logits/16384", tokens, 50304, C)
        self.swiglu("16384", tokens, C, 2048)
        self.swiglu("16384x4096", tokens, 4096, 11008)
        return self.list


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--filter", default="", metavar="REGEX", help="of the rows' names")
    parser.add_argument("--dtypes", default="fp32,bf16", help=f"of {', '.join(DTYPES)}")
    parser.add_argument("--min-time", type=float, default=0.3, metavar="SECONDS")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small shapes under the same names")
    args = parser.parse_args()
    dtypes = args.dtypes.split(",")
    if unknown := set(dtypes) - set(DTYPES):
        parser.error(f"--dtypes: {', '.join(sorted(unknown))}: want some of {', '.join(DTYPES)}")
    require_gpu(args.device)
    torch.manual_seed(0)
    # As cuBLASLt in f32 products of bench_kernels: exact products, no tf32.
    torch.backends.cuda.matmul.allow_tf32 = False
    # Compiled backwards run many times over one forward.
    torch._functorch.config.donated_buffer = False

    clock, rows, failed = Clock(args.device, args.min_time), [], 0
    for dtype in dtypes:
        for name, impl, gflop, gbytes, make in Cases(args.device, dtype, args.tiny).collect():
            if not re.search(args.filter, name):
                continue
            try:
                rows.append(row(name, impl, dtype, clock.measure(make), gflop, gbytes))
            except Exception as error:  # whatever a backend says that it cannot
                first_line = (str(error).splitlines() or [type(error).__name__])[0]
                rows.append({"name": name, "impl": impl, "dtype": dtype, "error": first_line[:200]})
                failed += 1
            print(json.dumps(rows[-1]), flush=True)
            if args.device == "cuda":
                torch.cuda.empty_cache()
    write(args.json, "peer_kernels", args.device, rows)
    if failed == len(rows):
        print("error: no rival could be measured", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
