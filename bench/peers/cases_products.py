"""GEMMs of other libraries, and layers made of them."""

import rivals
import torch
import torch.nn.functional as F


def without_grad(function, *operands):
    def fn():
        with torch.no_grad():
            function(*operands)
    return fn


# Adds the GEMM of a [m, k] and b [k, n], each of which may be a transposed view.
def add_product(cases, name, m, n, k, a_transposed=False, b_transposed=True):
    def make():
        a = cases.randn(k, m).T if a_transposed else cases.randn(m, k)
        b = cases.randn(n, k).T if b_transposed else cases.randn(k, n)
        return (m * k + n * k) * cases.size, without_grad(torch.matmul, a, b)

    cost = (2e-9 * m * n * k, (m * k + n * k + m * n) * cases.size * 1e-9)
    cases.add(name, f"PyTorch matmul ({cases.blas})", cost, lambda: make)


# Adds a layer with x [m, k] and w [n, k]. It computes both the GEMM with bias, which backward
# needs, and its GELU.
def add_linear_gelu(cases, name, m, n, k):
    def layer(x, w, b):
        h = F.linear(x, w, b)
        return h, F.gelu(h, approximate="tanh")

    cost = (2e-9 * m * n * k, (m * k + n * k + 2 * m * n) * cases.size * 1e-9)
    def maker(run):
        def make():
            operands = cases.randn(m, k), cases.randn(n, k), cases.randn(n)
            return (m * k + n * k) * cases.size, without_grad(run, *operands)

        return make

    for impl, compiler in cases.compilers(cases.blas):
        cases.add(name, impl, cost, lambda compiler=compiler: maker(compiler(layer)))


# Adds y = gelu(x w1^T + b1) w2^T + b2, forward and all gradients: six GEMMs. x: [tokens, d].
def add_ffn(cases, label, tokens, d):
    def layer(x, w1, b1, w2, b2):
        return F.linear(F.gelu(F.linear(x, w1, b1), approximate="tanh"), w2, b2)

    cost = (48e-9 * tokens * d * d, (38 * tokens * d + 24 * d * d) * cases.size * 1e-9)

    def maker(run):
        def make():
            inputs = [cases.randn(*shape, grad=True) for shape in
                      ((tokens, d), (4 * d, d), (4 * d,), (d, 4 * d), (d,))]
            dy = cases.randn(tokens, d)
            return ((2 * tokens * d + 8 * d * d) * cases.size,
                    lambda: torch.autograd.grad(run(*inputs), inputs, dy))

        return make

    for impl, compiler in cases.compilers(cases.blas):
        cases.add(f"gemm/ffn/{label}", impl, cost,
                  lambda compiler=compiler: maker(compiler(layer)))


# Adds a layer that computes two GEMMs of `hidden` columns each, which backward needs too, and their
# SwiGLU.
def add_linear_swiglu(cases, label, tokens, C, hidden):
    name = f"gemm/forward_swiglu/{label}"
    operand_bytes = (tokens * C + 2 * hidden * C) * cases.size
    cost = (4e-9 * tokens * hidden * C, operand_bytes * 1e-9
            + 3 * tokens * hidden * cases.size * 1e-9)

    def maker(swiglu, compiler=lambda fn: fn):
        def layer(x, w_gate, w_up):
            gate, up = F.linear(x, w_gate), F.linear(x, w_up)
            return gate, up, swiglu(gate, up)

        run = compiler(layer)

        def make():
            operands = cases.randn(tokens, C), cases.randn(hidden, C), cases.randn(hidden, C)
            return operand_bytes, without_grad(run, *operands)

        return make

    cases.add_of(rivals.LIGER, name, cost, lambda module: maker(module.liger_swiglu))
    for impl, compiler in cases.compilers(cases.blas):
        cases.add(name, impl, cost, lambda compiler=compiler: maker(pytorch_swiglu, compiler))


def pytorch_swiglu(gate, up):
    return F.silu(gate) * up


# Adds the activation of SwiGLU alone. gate, up: [tokens, hidden].
def add_swiglu(cases, label, tokens, hidden):
    name, cost = f"swiglu_fwd/{label}", (0, 3e-9 * tokens * hidden * cases.size)

    def maker(swiglu):
        def make():
            operands = cases.randn(tokens, hidden), cases.randn(tokens, hidden)
            return 2 * tokens * hidden * cases.size, without_grad(swiglu, *operands)

        return make

    cases.add_of(rivals.LIGER, name, cost, lambda module: maker(module.liger_swiglu))
    for impl, compiler in cases.compilers():
        cases.add(name, impl, cost, lambda compiler=compiler: maker(compiler(pytorch_swiglu)))


def add_all(cases):
    tiny = cases.tiny
    for n in (8192, 4096):
        m = 32 if tiny else n
        add_product(cases, f"gemm/square/{n}", m, m, m)
        add_product(cases, f"gemm/nn/{n}", m, m, m, b_transposed=False)
        add_product(cases, f"gemm/tn/{n}", m, m, m, a_transposed=True, b_transposed=False)
    for d in (768, 1600, 4096) if cases.name != "fp32" else ():
        add_ffn(cases, f"d{d}/t8192", *((16, 8) if tiny else (8192, d)))
    tokens, C, padded = (16, 8, 64) if tiny else (16384, 768, 50304)
    add_product(cases, "gemm/forward_qkv/16384", tokens, 3 * C, C)
    add_product(cases, "gemm/forward_attn_proj/16384", tokens, C, C)
    add_linear_gelu(cases, "gemm/forward_fc_gelu/16384", tokens, 4 * C, C)
    add_product(cases, "gemm/forward_mlp_proj/16384", tokens, C, 4 * C)
    add_product(cases, "gemm/forward_logits/16384", tokens, padded, C)
    for label, C, hidden in (("16384x4096", 4096, 11008), ("16384", 768, 2048)):
        if tiny:
            C, hidden = 8, 24
        add_linear_swiglu(cases, label, tokens, C, hidden)
        add_swiglu(cases, label, tokens, hidden)
