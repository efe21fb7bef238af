"""Norms of other libraries: [rows, C], with the residual addition that Shale's kernels fuse."""

import rivals
import torch
import torch.nn.functional as F

EPS = 1e-5


class Norm:
    """Functions of a rival, as far as it supports them, for x, r: [rows, C], gain and bias: [C].

    plain(x, gain, bias) returns y. fused(x, r, gain, bias) returns (s, y), where s = x + r and y is
    its norm. make_backward(x, r, gain, bias, ds, dy) returns a function that computes the gradients
    of x, gain and bias; without it, autograd does.
    """

    def __init__(self, plain=None, fused=None, make_backward=None, f32_gain=False):
        self.plain, self.f32_gain = plain, f32_gain
        self.fused = fused or self.add_then_norm
        self.make_backward = make_backward or self.autograd

    def add_then_norm(self, x, r, gain, bias):
        s = x + r
        return s, self.plain(s, gain, bias)

    def autograd(self, x, r, gain, bias, ds, dy):
        wanted = [x, gain] + ([bias] if bias is not None else [])
        for tensor in wanted:
            tensor.requires_grad_()
        outputs = self.fused(x, r, gain, bias)
        return lambda: torch.autograd.grad(outputs, wanted, (ds, dy), retain_graph=True)


def plus(d_sum, gradients):
    """Adds the incoming gradient of s to that of x."""
    return (gradients[0] + d_sum, *gradients[1:])


# ---- Other libraries, by kind of norm ----

def pytorch(kind, compiler):
    norms = {"layer_norm": lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b, EPS),
             "rms_norm": lambda x, g, b: F.rms_norm(x, x.shape[-1:], g, EPS)}
    eager = Norm(plain=norms[kind])
    return Norm(plain=compiler(eager.plain), fused=compiler(eager.fused))


def liger(functional, kind):
    if kind == "layer_norm":
        return Norm(plain=lambda x, g, b: functional.liger_layer_norm(x, g, b, EPS))

    def fused(x, r, g, b):
        # With in_place, the backward pass would overwrite dy, which later calls need.
        y, s = functional.liger_fused_add_rms_norm(x, r, g, EPS, in_place=False)
        return s, y

    return Norm(fused=fused)


def quack(module, kind):
    if kind == "rms_norm":
        def fused(x, r, g, b):
            y, s = module.rmsnorm(x, g, residual=r, eps=EPS, prenorm=True)
            return s, y

        return Norm(fused=fused)

    from quack.rmsnorm import layernorm_bwd, layernorm_fwd

    def make_backward(x, r, gain, bias, ds, dy):
        s = x + r
        _, rstd, mean = layernorm_fwd(s, gain, bias, EPS, return_rstd=True, return_mean=True)
        return lambda: plus(ds, layernorm_bwd(s, gain, dy, rstd, mean))

    return Norm(plain=lambda x, g, b: layernorm_fwd(x, g, b, EPS), make_backward=make_backward,
                f32_gain=True)


def transformer_engine(module, kind):
    """Uses its kernels directly: its modules free what backward needs, so that it could not run
    twice."""
    import transformer_engine_torch as kernels

    names = {torch.float32: "kFloat32", torch.float16: "kFloat16", torch.bfloat16: "kBFloat16"}
    forward = getattr(kernels, kind.replace("_", "") + "_fwd")
    backward = getattr(kernels, kind.replace("_", "") + "_bwd")

    def all_outputs(x, gain, bias):
        parameters = (gain,) if kind == "rms_norm" else (gain, bias)
        dtype = getattr(kernels.DType, names[x.dtype])
        return forward(x, *parameters, EPS, None, None, dtype, 0, False)

    def make_backward(x, r, gain, bias, ds, dy):
        s = x + r
        statistics = [t for t in all_outputs(s, gain, bias)[1:] if t is not None]
        return lambda: plus(ds, backward(dy, s, *statistics, gain, 0, False))

    return Norm(plain=lambda x, g, b: all_outputs(x, g, b)[0], make_backward=make_backward)


def apex(module, kind):
    if kind == "layer_norm":
        return Norm(plain=lambda x, g, b: module.fused_layer_norm_affine(x, g, b, g.shape, EPS))
    return Norm(plain=lambda x, g, b: module.fused_rms_norm_affine(x, g, g.shape, EPS))


LIBRARIES = {rivals.QUACK: quack, rivals.LIGER: liger,
             rivals.TRANSFORMER_ENGINE: transformer_engine, rivals.APEX: apex}

# ---- Cases of bench_kernels ----


class NormCases:
    """Cases of one kind and size."""

    def __init__(self, cases, kind, label, rows, C):
        self.cases, self.kind, self.label, self.rows, self.C = cases, kind, label, rows, C

    def operands(self, norm):
        x, r = (self.cases.randn(self.rows, self.C) for _ in range(2))
        dtype = torch.float32 if norm.f32_gain else None
        gain, bias = (self.cases.randn(self.C, dtype=dtype) for _ in range(2))
        return x, r, gain, bias if self.kind == "layer_norm" else None

    def plain(self, norm):
        x, _, gain, bias = self.operands(norm)
        return self.call(norm.plain, x, gain, bias)

    def fused(self, norm):
        return self.call(norm.fused, *self.operands(norm))

    @staticmethod
    def call(function, *operands):
        def fn():
            with torch.no_grad():
                function(*operands)
        return fn

    def backward(self, norm):
        x, r, gain, bias = self.operands(norm)
        return norm.make_backward(x, r, gain, bias, torch.randn_like(x), torch.randn_like(x))

    def add(self, name, tensors, way):
        """tensors: number of [rows, C] tensors read or written."""
        tensor_bytes = tensors * self.rows * self.C * self.cases.size
        statistics = (2 if self.kind == "layer_norm" else 1) * self.rows * 4
        cost = (0, (tensor_bytes + statistics) * 1e-9)
        name = f"{self.kind}_{name}/{self.label}"

        def maker(norm):
            return lambda: (tensor_bytes, way(norm))

        for library, norm_of in LIBRARIES.items():
            self.cases.add_of(library, name, cost, lambda module, norm_of=norm_of: maker(
                norm_of(module, self.kind)))
        for impl, compiler in self.cases.compilers():
            self.cases.add(name, impl, cost, lambda compiler=compiler: maker(
                pytorch(self.kind, compiler)))


def add_all(cases):
    for label, rows, C in (("16384x4096", 16384, 4096), ("16384", 16384, 768)):
        if cases.tiny:
            rows, C = 16, 64
        for kind in ("layer_norm", "rms_norm"):
            norm = NormCases(cases, kind, label, rows, C)
            if kind == "layer_norm":
                norm.add("fwd", 2, norm.plain)
            norm.add("fwd/residual", 4, norm.fused)
            norm.add("bwd/residual", 4, norm.backward)
