"""Loss, optimizer and copies of other libraries."""

import rivals
import torch
import torch.nn.functional as F

# ---- Cross entropy and gradient of logits: [tokens, padded], with `vocab` valid columns ----


def pytorch_loss(vocab):
    def loss(logits, targets):
        return F.cross_entropy(logits[:, :vocab].float(), targets, reduction="sum")
    return loss


def liger_loss(module, vocab):
    """The gradient overwrites the logits, as in Shale's kernel."""
    return lambda logits, targets: module.liger_cross_entropy(logits, targets, reduction="sum")


def quack_loss(module, vocab):
    return lambda logits, targets: module.cross_entropy(logits, targets, reduction="sum",
                                                        inplace_backward=True)


def add_loss(cases, label, tokens, vocab, padded):
    name, tensor_bytes = f"cross_entropy/grad/{label}", 2 * tokens * padded * cases.size
    cost = (0, (tensor_bytes + 8 * tokens) * 1e-9)

    # The libraries' kernels treat all `padded` columns as logits, but move as many bytes.
    def maker(loss):
        def make():
            logits = cases.randn(tokens, padded, grad=True)
            targets = torch.randint(0, vocab, (tokens,), device=cases.device)
            return tensor_bytes, lambda: torch.autograd.grad(loss(logits, targets), logits)

        return make

    for library, loss_of in ((rivals.QUACK, quack_loss), (rivals.LIGER, liger_loss)):
        cases.add_of(library, name, cost,
                     lambda module, loss_of=loss_of: maker(loss_of(module, vocab)))
    for impl, compiler in cases.compilers():
        cases.add(name, impl, cost,
                  lambda compiler=compiler: maker(compiler(pytorch_loss(vocab))))


# ---- Classifier with its loss and all gradients, for which Shale has no single kernel ----

def add_linear_loss(cases, label, tokens, C, vocab, padded):
    """x: [tokens, C], w: [padded, C]. Compared with the sum of gemm/forward_logits,
    cross_entropy/grad, gemm/dx_logits and gemm/dw_logits."""
    name = f"linear_cross_entropy/grad/{label}"
    operand_bytes = (tokens * C + padded * C) * cases.size
    cost = (6e-9 * tokens * C * padded, 2e-9 * operand_bytes)

    def maker(loss):
        def make():
            x, w = cases.randn(tokens, C, grad=True), cases.randn(padded, C, grad=True)
            targets = torch.randint(0, vocab, (tokens,), device=cases.device)
            return operand_bytes, lambda: torch.autograd.grad(loss(x, w, targets), (x, w))

        return make

    cases.add_of(rivals.LIGER, name, cost, lambda module: maker(
        lambda x, w, targets: module.liger_fused_linear_cross_entropy(x, w, targets,
                                                                      reduction="sum")))
    pytorch = pytorch_loss(vocab)
    for impl, compiler in cases.compilers(cases.blas):
        cases.add(name, impl, cost, lambda compiler=compiler: maker(
            compiler(lambda x, w, targets: pytorch(F.linear(x, w), targets))))


# ---- Flat buffers ----

def add_adamw(cases, elements):
    """f32 parameters, as PyTorch has no fused step with f32 masters of bf16 parameters."""
    def make():
        p = torch.zeros(elements, device=cases.device, requires_grad=True)
        p.grad = torch.randn_like(p)
        return 16 * elements, torch.optim.AdamW([p], lr=1e-4, fused=True).step

    cases.add("adamw/flat", "PyTorch AdamW, fused", (0, 28 * elements * 1e-9), lambda: make)


def add_copy(cases, elements):
    def make():
        x, y = cases.randn(elements), cases.randn(elements)
        return 2 * elements * cases.size, lambda: y.copy_(x)

    cases.add("copy/flat", "PyTorch copy_", (0, 2 * elements * cases.size * 1e-9), lambda: make)


def add_all(cases):
    tokens, C, vocab, padded = (8, 8, 100, 128) if cases.tiny else (16384, 768, 50257, 50304)
    parameters = 1000 if cases.tiny else 124475904
    add_loss(cases, "16384", tokens, vocab, padded)
    add_linear_loss(cases, "16384", tokens, C, vocab, padded)
    if cases.name == "fp32":
        add_adamw(cases, parameters)
    add_copy(cases, parameters)
