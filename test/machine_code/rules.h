#pragma once

#include <string>
#include <vector>

#include "shale/test/machine_code/sass.h"

// Rules for what the kernel sources intend and a compiler may defeat. Each rule returns a line per
// violation that it finds in a kernel.
namespace shale::machine_code {

using Findings = std::vector<std::string>;

// In loops with matmuls and exponentials, all exponentials are between the wait that leaves one
// matmul group pending and the wait for that group, so that they overlap with it.
Findings exponentials_beside_products(const Kernel& kernel);

// In loops with matmuls and exponentials, all exponentials, rounding, stores to shared memory and
// barriers occur while a matmul is pending, so that the tensor cores stay busy.
Findings work_beside_products(const Kernel& kernel);

// One of the loops with matmuls and exponentials has at most `most` exponentials on the
// special-function pipe and `most_products` float multiplications: the other exponentials use FMA,
// and sums are scaled elsewhere.
Findings few_exponentials(const Kernel& kernel, size_t most, size_t most_products);

// There are no four 4-byte stores to adjacent words, which should be a single 16-byte store.
Findings whole_stores(const Kernel& kernel);

// In warpgroup matmul loops, at most one register per six matmuls is moved to a uniform register,
// so descriptors are computed in uniform registers.
Findings uniform_descriptors(const Kernel& kernel);

// Loops with 8-bit matmuls exist, accumulate their results, and never wait for all matmul groups,
// so that one stays pending.
Findings sums_beside_products(const Kernel& kernel);

// Inner loops have no integer division except by constants.
Findings no_division(const Kernel& kernel);

// No conversion uses the special-function pipe, which takes four times as long as the ALU.
Findings fast_rounding(const Kernel& kernel);

// The shortest code between two TMA stores of boxes that has the four stmatrix of a box has at most
// `most` instructions.
Findings boxes_from_registers(const Kernel& kernel, size_t most);

// In kernels whose warpgroups alternate on the tensor cores, a warpgroup passes the turn on after
// its matmul loop and before the wait for the last matmuls.
Findings turns_pass_before_waits(const Kernel& kernel);

// The next tile's number, fetched by an atomic operation, is not used before the current tile's
// operands are being copied, because the first use waits for the number.
Findings next_tile_behind_copies(const Kernel& kernel);

// The main loops, which fill and release pipeline stages, have no memory fence, even in clusters.
// A kernel needs fences only to join or leave a cluster, and if blocks share an output tile.
Findings stages_without_fences(const Kernel& kernel);

// The kernel has at most `most` instructions.
Findings within_budget(const Kernel& kernel, size_t most);

}  // namespace shale::machine_code
