"""Rivals: implementations of cases of bench_kernels in other libraries."""

import dataclasses
import importlib
import importlib.metadata

import torch

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclasses.dataclass(frozen=True)
class Library:
    """Package that may be missing. `modules` are tried in order."""

    impl: str  # name of the library in rows
    package: str  # name of the package for pip
    modules: tuple

    def load(self):
        """Returns the first module that can be imported. Raises the error of the first module."""
        first = None
        for module in self.modules:
            try:
                return importlib.import_module(module)
            # A library that was built for another PyTorch may raise anything.
            except Exception as error:
                first = first or error
        raise first

    def version(self):
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return "unknown"


# FlashAttention-3 was a single module before it became a package.
FLASH_3 = Library("FlashAttention-3", "flash_attn_3",
                  ("flash_attn_interface", "flash_attn_3.flash_attn_interface"))
FLASH_4 = Library("FlashAttention-4", "flash-attn-4", ("flash_attn.cute",))
FLASH_2 = Library("FlashAttention-2", "flash-attn", ("flash_attn.flash_attn_interface",))
LIGER = Library("Liger-Kernel (Triton)", "liger-kernel", ("liger_kernel.transformers.functional",))
QUACK = Library("QuACK", "quack-kernels", ("quack",))
TRANSFORMER_ENGINE = Library("Transformer Engine", "transformer-engine",
                             ("transformer_engine.pytorch",))
APEX = Library("Apex", "apex", ("apex.normalization.fused_layer_norm",))


@dataclasses.dataclass(frozen=True)
class Case:
    """A row to measure. prepare() returns make(), which allocates operands and returns their bytes
    and a function that uses them."""

    name: str  # name of the case in bench_kernels, with dtype
    impl: str
    dtype: str
    gflop: float
    gbytes: float
    prepare: object
    library: Library | None = None  # None: PyTorch itself

    def fields(self):
        version = self.library.version() if self.library else torch.__version__
        return {"name": self.name, "impl": self.impl, "dtype": self.dtype, "version": version}


class Cases:
    """Collects cases of one dtype."""

    def __init__(self, device, dtype, tiny):
        self.device, self.name, self.dtype, self.tiny = device, dtype, DTYPES[dtype], tiny
        self.size = self.dtype.itemsize
        self.list = []
        on_gpu = torch.device(device).type == "cuda"
        # Language of the code that torch.compile generates.
        self.language = "Triton" if on_gpu else "C++"
        self.blas = "cuBLAS" if on_gpu else "oneDNN"
        self.convolutions = "cuDNN" if on_gpu else "oneDNN"

    def add(self, name, impl, cost, prepare, library=None):
        """cost: (GFLOP, GB) required by the work, for every implementation."""
        self.list.append(Case(f"{name}/{self.name}", impl, self.name, *cost, prepare, library))

    def add_of(self, library, name, cost, prepare):
        """Adds a case of a library that may be missing; prepare gets the module."""
        self.add(name, library.impl, cost, lambda: prepare(library.load()), library)

    def compilers(self, *others):
        """Returns (impl, compile) for eager and compiled PyTorch. others: libraries that compiled
        code calls."""
        made_of = ", ".join([*others, self.language])
        return (("PyTorch eager", lambda fn: fn),
                (f"torch.compile ({made_of})", lambda fn: torch.compile(fn, dynamic=False)))

    def randn(self, *shape, grad=False, dtype=None):
        return torch.randn(shape, device=self.device, dtype=dtype or self.dtype,
                           requires_grad=grad)


# ---- Names ----

def figure_names():
    """Returns the names of the main figures, in the order of bench/support/report_figures.cpp."""
    names = [f"attention_{way}/causal/{shape}/bf16"
             for shape in ("d128/t8192", "d64/t1024", "d64/t8192") for way in ("fwd", "bwd")]
    names.append("gemm/square/8192/bf16")
    return names + [f"gemm/ffn/d{d}/t8192/bf16" for d in (768, 1600, 4096)]


def names_of_ours(name):
    """Returns the bench_kernels cases that a rival's case is compared with: the one with its name,
    and those with the name of a kernel family."""
    slot, _, rest = name.partition("/")
    variant = rest.split("/")[0]
    families = ()
    if slot == "gemm" and variant == "ffn":
        families = ("hopper", "portable", "vendor")
    elif slot == "gemm" and variant in ("square", "nn", "tn"):
        families = ("portable",) if name.endswith("/fp32") else ("hopper", "portable")
        rest = rest.replace("square", "nt")
    elif slot in ("attention_fwd", "attention_bwd") and rest.startswith("causal/d"):
        families = () if name.endswith("/fp32") else ("hopper", "portable")
    return [name] + [f"{slot}/{family}_{rest}" for family in families]
