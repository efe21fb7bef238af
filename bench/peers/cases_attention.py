"""Attention's rivals. Of B sequences of T tokens, H heads of D columns, `shared` of which have one
head of keys and values."""

import dataclasses

import rivals
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

# Fastest first, as far as one can tell.
BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}
FLASH = (rivals.FLASH_3, rivals.FLASH_4, rivals.FLASH_2)


@dataclasses.dataclass(frozen=True)
class Shape:
    label: str
    B: int
    T: int
    H: int
    D: int
    causal: bool = True
    shared: int = 1
    ragged: bool = False  # sequence b has T - b T / (2 B) tokens
    window: bool = False  # of T / 8 tokens
    documents: bool = False  # 8 of T / 8 tokens in each sequence
    softcap: float = 0.0  # 0: none
    deterministic: bool = False  # backward without atomics; no forward of its own

    @property
    def variant(self):
        names = [name for name in ("ragged", "window", "documents", "softcap", "deterministic")
                 if getattr(self, name)]
        if self.shared > 1:
            names.append("grouped")
        return names[0] if names else "causal" if self.causal else "full"

    @property
    def eighth(self):
        return self.T // 8

    @property
    def hides_keys(self):
        return self.window or self.documents

    def lengths(self):
        if self.documents:
            return [self.eighth] * (8 * self.B)
        return [self.T - b * self.T // (2 * self.B) if self.ragged else self.T
                for b in range(self.B)]

    def pairs(self):
        """Queries and keys that see each other, of all heads."""
        if self.window:
            return self.H * self.B * (self.eighth * self.T - self.eighth * (self.eighth - 1) // 2)
        return self.H * sum(n * (n + 1) // 2 if self.causal else n * n for n in self.lengths())


class Inputs:
    """q, k and v as slices of one [B, T, H + 2 Hkv, D] tensor, as in a model."""

    def __init__(self, cases, shape, grad, packed=False):
        kv_heads = shape.H // shape.shared
        rows = (shape.B, shape.T)
        if shape.ragged or packed:
            rows = (sum(shape.lengths()),)
        qkv = cases.randn(*rows, shape.H + 2 * kv_heads, shape.D).requires_grad_(grad)
        self.qkv = qkv.split([shape.H, kv_heads, kv_heads], dim=-2)

    def heads_first(self):
        return [x.transpose(1, 2) for x in self.qkv]


def forward_of(attend, tensors):
    def fn():
        with torch.no_grad():
            attend(*tensors)
    return fn


def backward_of(attend, tensors):
    out = attend(*tensors)
    d_out = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, tensors, d_out, retain_graph=True)


def flash_attention(module, shape, device):
    """The function of a FlashAttention package, of q, k and v with heads behind tokens."""
    options = {"causal": shape.causal, "deterministic": shape.deterministic}
    if shape.softcap:
        options["softcap"] = shape.softcap
    if shape.window:
        options["window_size"] = (shape.eighth - 1, 0)
    if shape.ragged or shape.documents:
        lengths = torch.tensor([0, *shape.lengths()], device=device)
        starts = torch.cumsum(lengths, 0, dtype=torch.int32)
        options |= {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": max(shape.lengths()),
                    "max_seqlen_k": max(shape.lengths())}
        function = module.flash_attn_varlen_func
    else:
        function = module.flash_attn_func

    def attend(q, k, v):
        out = function(q, k, v, **options)
        return out[0] if isinstance(out, tuple) else out  # some versions add the lse

    return attend


def scaled_dot_product(shape, backend):
    def attend(q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=shape.causal,
                                                  enable_gqa=shape.shared > 1)
    return attend


def flex_attention(shape, device):
    """PyTorch's attention that torch.compile generates, with a mask of blocks."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    part = shape.eighth
    sees = {"causal": lambda b, h, q, k: q >= k,
            "window": lambda b, h, q, k: (q >= k) & (q - k < part),
            "documents": lambda b, h, q, k: (q >= k) & (q // part == k // part)}
    mask = None
    if shape.causal:
        sees = sees.get(shape.variant, sees["causal"])
        mask = create_block_mask(sees, None, None, shape.T, shape.T, device=device)
    def capped(score, b, h, q, k):
        return shape.softcap * torch.tanh(score / shape.softcap)

    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, score_mod=capped if shape.softcap else None,
                                    block_mask=mask, enable_gqa=shape.shared > 1)


class AttentionCases:
    """Of one shape, forward or backward."""

    def __init__(self, cases, shape, backward):
        self.cases, self.shape, self.backward = cases, shape, backward
        self.name = f"attention_{'bwd' if backward else 'fwd'}/{shape.variant}/{shape.label}"
        heads = shape.H * (8 if backward else 4) / 2  # half of them of q's size, half of k's
        heads += heads / shape.shared
        rows = shape.B * shape.T
        gbytes = (rows * heads * shape.D * cases.size + rows * shape.H * 4) * 1e-9
        self.cost = ((10e-9 if backward else 4e-9) * shape.pairs() * shape.D, gbytes)
        operands = shape.H * (3 if backward else 1) + 2 * shape.H // shape.shared
        self.operand_bytes = rows * operands * shape.D * cases.size

    def maker(self, attend, heads_first, packed=False):
        def make():
            inputs = Inputs(self.cases, self.shape, grad=self.backward, packed=packed)
            tensors = inputs.heads_first() if heads_first else inputs.qkv
            call = (backward_of if self.backward else forward_of)(attend, tensors)
            return self.operand_bytes, call

        return make

    def add_flash(self):
        for library in FLASH if self.cases.name != "fp32" else ():
            self.cases.add_of(library, self.name, self.cost, lambda module: self.maker(
                flash_attention(module, self.shape, self.cases.device), heads_first=False,
                packed=self.shape.documents))

    def add_pytorch(self):
        for backend, which in BACKENDS.items():
            if self.shape.hides_keys or self.shape.softcap:
                break  # its fast paths know no such mask, and no cap
            if backend == "math" and self.shape.T > 2048:
                continue  # the T x T matrix, in memory
            if backend in ("cuDNN", "flash") and self.cases.name == "fp32":
                continue  # 16 bits only
            self.cases.add(self.name, f"PyTorch SDPA, {backend}", self.cost, lambda which=which:
                           self.maker(scaled_dot_product(self.shape, which), heads_first=True))
        impl = f"PyTorch FlexAttention ({self.cases.language})"
        self.cases.add(self.name, impl, self.cost, lambda: self.maker(
            flex_attention(self.shape, self.cases.device), heads_first=True))


def add_attention(cases, shape):
    for backward in (True,) if shape.deterministic else (False, True):
        of_shape = AttentionCases(cases, shape, backward)
        of_shape.add_flash()
        if not shape.ragged and not shape.deterministic:
            of_shape.add_pytorch()


def add_all(cases):
    """All shapes of bench_kernels, with heads of 64 and 128."""
    add_shape = lambda label, *size, **how: add_attention(  # noqa: E731
        cases, Shape(label, *((2, 16, 4, size[-1]) if cases.tiny else size), **how))
    variants = ({"causal": False}, {"shared": 4}, {"ragged": True}, {"window": True},
                {"documents": True}, {"softcap": 50.0}, {"deterministic": True})
    for D in (64, 128):
        for T in (1024, 2048, 4096, 8192):
            size = (16384 // T, T, 2048 // D, D)
            add_shape(f"d{D}/t{T}", *size)
            for how in variants if T == 4096 else ():
                add_shape(f"d{D}/t{T}", *size, **how)
    for how in ({}, *variants):
        add_shape("16384", 16, 1024, 12, 64, **how)
