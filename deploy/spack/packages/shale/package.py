"""Spack recipe that builds the committed state of the tree that contains it. NOT RUN."""

import os

from spack.package import *


class Shale(CMakePackage, CudaPackage):
    """Trains transformers on CPUs and GPUs, one MPI rank per device."""

    tree = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..", ".."))
    homepage = "file://" + tree
    git = "file://" + tree

    version("main", branch="main")

    variant("emulator", default=False, description="The GPU's kernels on the CPU, slowly")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("mpi")
    depends_on("onednn@2:")
    depends_on("highway@1:")
    depends_on("spdlog")
    depends_on("nlohmann-json@3.9:")
    depends_on("tomlplusplus@3:")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("libpng")
    depends_on("jpeg")
    depends_on("cuda@12.1:", when="+cuda")
    depends_on("nccl@2.26.2:", when="+cuda")

    generator("ninja")
    conflicts("target=aarch64:", msg="Linux on x86-64 alone")

    def cmake_args(self):
        args = [
            self.define("SHALE_BUILD_TESTS", False),
            self.define("SHALE_BUILD_BENCH", False),
            self.define("SHALE_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
            self.define_from_variant("SHALE_EMULATOR", "emulator"),
        ]
        arch = self.spec.variants["cuda_arch"].value
        if self.spec.satisfies("+cuda") and "none" not in arch:
            args.append(self.define("SHALE_CUDA_ARCHITECTURES", [a + "-real" for a in arch]))
        return args
