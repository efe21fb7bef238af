// Writes the bounds page: the kernels on it and its layout.
#include <cstdio>

#include "shale/base/error.h"
#include "shale/test/machine_code/bounds.h"
#include "shale/test/machine_code/epilogue.h"

namespace shale::machine_code {
namespace {

// A GEMM kernel with `warps` multiplying warps per block and `dynamic_kib` KiB of dynamic shared
// memory.
struct ProductKernel {
  std::string file, architecture, name;
  const char* tile;
  int warps, dynamic_kib;
  const char* gpu;
};

const std::vector<ProductKernel> kProducts = {
    {"gemm90_bf16", "sm_90a", "gemm90_kernel<bf16, Gemm90Config<256, 4, false>, false, false,",
     "128 x 256 of c, 4 stages of 64 of k", 8, 225, "H100"},
    {"gemm90_bf16", "sm_90a", "gemm90_kernel<bf16, Gemm90Config<128, 6, false>, false, false,",
     "128 x 128 of c, 6 stages of 64 of k", 8, 225, "H100"},
    {"gemm90_bf16", "sm_90a", "gemm90_kernel<bf16, Gemm90Config<64, 6, false>, false, false,",
     "128 x 64 of c, 6 stages of 64 of k", 8, 177, "H100"},
    {"gemm90_bf16", "sm_90a", "gemm90_kernel<bf16, Gemm90PingPong<6, false>, false, false,",
     "two tiles of 128 x 128 of c alternately, 6 stages of 64 of k", 4, 225, "H100"},
    {"attention90_fwd_bf16", "sm_90a", "attention90_fwd_kernel<bf16, 128, false>",
     "128 queries by 128 keys, 2 stages", 8, 193, "H100"},
    {"attention90_fwd_bf16", "sm_90a", "attention90_fwd_kernel<bf16, 64, false>",
     "192 queries by 128 keys, 4 stages", 12, 178, "H100"},
    {"attention90_fwd_bf16", "sm_90a", "attention90_fwd_kernel<bf16, 96, false>",
     "128 queries by 128 keys, 2 stages", 8, 193, "H100"},
    {"attention90_fwd_bf16", "sm_90a", "attention90_fwd_kernel<bf16, 192, false>",
     "128 queries by 96 keys, 2 stages", 8, 194, "H100"},
    {"attention90_fwd_bf16", "sm_90a", "attention90_fwd_kernel<bf16, 256, false>",
     "128 queries by 64 keys, 2 stages", 8, 194, "H100"},
    {"attention90_bwd_bf16", "sm_90a", "attention90_bwd_keys_kernel<bf16, 128, true, false>",
     "128 keys by 64 queries, 2 stages", 8, 194, "H100"},
    {"attention90_bwd_bf16", "sm_90a", "attention90_bwd_keys_kernel<bf16, 96, true, false>",
     "128 keys by 64 queries, 2 stages", 8, 194, "H100"},
    {"attention90_bwd_bf16", "sm_90a", "attention90_bwd_keys_kernel<bf16, 64, true, false>",
     "128 keys by 128 queries, 2 stages", 8, 195, "H100"},
    {"attention90_bwd_bf16", "sm_90a", "attention90_bwd_keys_kernel<bf16, 192, true, false>",
     "64 keys by 64 queries, 2 stages; both warpgroups counted as the first one", 8, 194, "H100"},
    {"attention90_bwd_bf16", "sm_90a", "attention90_bwd_keys_kernel<bf16, 256, true, false>",
     "64 keys by 64 queries, 2 stages", 8, 226, "H100"},
    {"attention90_bwd_bf16", "sm_90a", "attention90_bwd_queries_kernel<bf16, 128, false>",
     "128 queries by 64 keys, 2 stages", 8, 129, "H100"},
    {"attention90_bwd_bf16", "sm_90a", "attention90_bwd_queries_kernel<bf16, 64, false>",
     "128 queries by 128 keys, 2 stages", 8, 97, "H100"},
    {"attention90_bwd_bf16", "sm_90a", "attention90_bwd_queries_kernel<bf16, 192, false>",
     "128 queries by 64 keys, 2 stages", 8, 194, "H100"},
    {"attention90_bwd_bf16", "sm_90a", "attention90_bwd_queries_kernel<bf16, 256, false>",
     "128 queries by 48 keys, 2 stages", 8, 226, "H100"},
    {"gemm_bf16", "sm_80",
     "gemm_kernel<bf16, GemmConfig<bf16, (kernels::GemmTile)3>, false, false,",
     "128 x 256 of c, 4 stages of 32 of k", 8, 132, "A100"},
    {"gemm_bf16", "sm_80",
     "gemm_kernel<bf16, GemmConfig<bf16, (kernels::GemmTile)2>, false, false,",
     "128 x 128 of c, 4 stages of 32 of k", 4, 68, "A100"},
    {"attention_fwd_bf16", "sm_80",
     "attention_fwd_kernel<bf16, 128, (kernels::AttentionTile)3, false>", "128 queries by 32 keys",
     4, 48, "A100"},
    {"attention_fwd_bf16", "sm_80",
     "attention_fwd_kernel<bf16, 64, (kernels::AttentionTile)4, false>", "128 queries by 64 keys",
     4, 32, "A100"},
};

// A kernel that reads and writes arrays once. Its bound covers its loop over the arrays, or its
// whole code if it has no loop.
struct StreamingKernel {
  std::string file, name;
};
const std::vector<StreamingKernel> kStreaming = {
    {"norm_fwd", "norm_fwd_kernel<bf16, 3, true, true>"},
    {"norm_bwd", "norm_bwd_kernel<bf16, 3, true, true>"},
    {"optim", "map_kernel<AdamW<Weights<bf16>, float, bf16> >"},
    {"elementwise", "map_kernel<GeluFwd<bf16, Tanh> >"},
    {"elementwise", "map_kernel<Binary<Typed<bf16>, GeluBwd<Tanh> > >"},
    {"elementwise", "map_kernel<Binary<Typed<bf16>, SwiGlu> >"},
    {"dropout", "dropout_kernel<bf16>"},
};

const Gpu& gpu_named(const std::string& name) {
  for (const Gpu& gpu : gpus()) {
    if (gpu.name == name) return gpu;
  }
  throw InternalError("no GPU " + name);
}

const Kernel& find_kernel(const std::string& objects, const std::string& file,
                          const std::string& architecture, const std::string& name) {
  for (const Kernel& kernel : disassemble(cat(objects, "/", file, ".o"), architecture)) {
    if (kernel.name.starts_with(name)) return kernel;
  }
  throw InternalError(cat(file, " has no ", name, " for ", architecture));
}

// Returns the loop with the most matmul work. Among equal loops it takes the shortest, which has no
// masks.
Loop product_loop(const Kernel& kernel) {
  Loop best;
  Work most;
  for (const char* opcode : {"HGMMA", "HMMA"}) {
    for (const Loop& loop : kernel.inner_loops(opcode)) {
      const Work work = work_of(kernel, loop);
      const bool is_better = work.tensor_fma > most.tensor_fma ||
                             (work.tensor_fma == most.tensor_fma && work.issued < most.issued);
      if (is_better) best = loop, most = work;
    }
  }
  if (most.tensor_fma == 0) throw InternalError(kernel.name + " has no loop with products");
  return best;
}

// Returns `work` after checking that the pipes of all its opcodes are known.
const Work& known(const Kernel& kernel, const Work& work) {
  for (const auto& [opcode, count] : work.unknown) {
    throw InternalError(cat(kernel.name, ": ", opcode, " is in no table of bounds.cpp"));
  }
  return work;
}

std::string number(double value, int digits = 0) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// Formats a name as code in a table.
std::string code_of(const std::string& name) {
  return cat("`", name, "`");
}

std::string product_rows(const std::string& objects, std::string& pipes) {
  std::string text =
      "| kernel | tile | registers | blocks on a multiprocessor | of the tensor cores' peak | "
      "TFLOP/s |\n|---|---|---|---|---|---|\n";
  pipes =
      "| kernel | instructions | tensor cores | special | integers | FMA | shared memory | issue | "
      "limit |\n|---|---|---|---|---|---|---|---|---|\n";
  for (const ProductKernel& row : kProducts) {
    const Kernel& kernel = find_kernel(objects, row.file, row.architecture, row.name);
    const Resources& needs =
        resources_of(cat(objects, "/", row.file, ".o"), row.architecture).at(kernel.name);
    const int arch = row.architecture == "sm_80" ? 80 : 90;
    const int64_t blocks = resident_blocks(needs, int64_t{row.dynamic_kib} << 10, arch);
    const Work work = known(kernel, work_of(kernel, product_loop(kernel)));
    const Gpu& gpu = gpu_named(row.gpu);
    Cycles cycles = cycles_of(work, row.warps, gpu);
    cycles.memory = 0;  // operands come from the L2 cache, so global memory is no limit
    const double best = cycles.best_share(), worst = cycles.worst_share();
    const double peak = gpu.flops() / 1e12;
    text += cat("| ", code_of(kernel.name), ", ", row.gpu, " | ", row.tile, " | ", needs.registers,
                " | ", blocks, " | ", number(100 * worst), "% to ", number(100 * best), "% | ",
                number(worst * peak), " to ", number(best * peak), " |\n");
    pipes += cat("| ", code_of(kernel.name), " | ", number(work.issued), " | ",
                 number(cycles.tensor), " | ", number(cycles.special), " | ", number(cycles.alu),
                 " | ", number(cycles.fma), " | ", number(cycles.shared), " | ",
                 number(cycles.issue), " | ", cycles.limit(), " |\n");
  }
  return text;
}

// Returns the longest loop that accesses global memory, or all code if there is none.
Loop streaming_loop(const Kernel& kernel) {
  Loop best{0, kernel.code.size() - 1};
  double most = 0;
  for (const Loop& loop : kernel.inner_loops()) {
    const double bytes = work_of(kernel, loop).global_bytes;
    if (bytes > most) best = loop, most = bytes;
  }
  return best;
}

std::string streaming_rows(const std::string& objects) {
  std::string text =
      "| kernel | registers | bytes of a pass | instructions | of memory's speed on an H100 | "
      "on an H200 | limit on an H200 |\n|---|---|---|---|---|---|---|\n";
  for (const StreamingKernel& row : kStreaming) {
    const Kernel& kernel = find_kernel(objects, row.file, "sm_90", row.name);
    const Resources& needs =
        resources_of(cat(objects, "/", row.file, ".o"), "sm_90").at(kernel.name);
    const Work work = known(kernel, work_of(kernel, streaming_loop(kernel)));
    const auto share = [&](const Gpu& gpu) {
      const Cycles cycles = cycles_of(work, 1, gpu);
      return number(100 * std::min(1.0, cycles.memory / cycles.longest_besides_tensor()));
    };
    text += cat("| ", code_of(kernel.name), " | ", needs.registers, " | ",
                number(work.global_bytes / 32), " a lane | ", number(work.issued), " | ",
                share(gpu_named("H100")), "% | ", share(gpu_named("H200")), "% | ",
                cycles_of(work, 1, gpu_named("H200")).limit(), " |\n");
  }
  return text;
}

}  // namespace

std::string bounds_page(const std::string& objects, const std::string& cuda_version) {
  std::string pipes;
  const std::string products = product_rows(objects, pipes);
  return cat(
      R"(# What machine code allows: upper bounds

This page predicts how fast the GPU kernels can be at most, from the instructions of their machine
code. It is for people who tune kernels. After a build with CUDA, for which no GPU is needed, this
command writes it:

```text
build/release/test/machine_code_bounds > docs/contributing/bounds.md
```

The kernels of this page were compiled with CUDA )",
      cuda_version, R"(. Nothing on it was measured on a GPU.

**Each percentage of a peak on this page is an upper bound of what a kernel can reach; of a range
such as 90% to 100%, only the upper end is a bound. No bound includes the port of shared memory.**
On an H100, tensor cores read operands and TMA writes through this port, 128 bytes per cycle. For
each 64 of k, the 128 x 128 ping-pong GEMM needs 512 cycles of the tensor cores, but 640 of the
port: 384 for operands and 256 for TMA. So it reaches at most 80% of the peak, where the table says
100%. The port limits other kernels with operands in shared memory too.

A multiprocessor has several pipes (execution units). For each pipe, the page counts the
instructions that it executes in one pass of the kernel's main loop;
[bounds.cpp](../../test/machine_code/bounds.cpp) has the instructions per cycle of each pipe. The
higher percentage assumes that all pipes work in parallel, so that the busiest pipe is the limit.
The lower percentage adds the time of the tensor cores and the time of the busiest other pipe, as if
they never overlapped; a kernel that overlaps them may exceed it. Both leave out waits for memory
and barriers, the beginning and end of a tile, and the lower clock under load.

## GEMMs and attention: upper bounds

The percentages refer to the dense bf16 peak (989 TFLOP/s on H100 and H200, 312 on A100), and to the
main loop of a full tile without masks.

)",
      products,
      "\nCycles of a multiprocessor, by pipe, for one pass of all compute warps through the "
      "loop:\n\n",
      pipes,
      epilogue_section(disassemble(cat(objects, "/gemm90_bf16.o"), "sm_90a"), gpu_named("H100")),
      shares_section(gpu_named("H100")),
      R"(
## Kernels that memory limits

The table shows at which share of the memory bandwidth (3.35 TB/s on an H100, 4.8 on an H200)
instructions and pipes would become the limit; 100% means that memory is always the limit. Bytes
and instructions are those of one pass of the kernel's loop, or of the whole kernel if it has none.

)",
      streaming_rows(objects));
}

}  // namespace shale::machine_code
