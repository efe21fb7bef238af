#pragma once

#include <string>
#include <vector>

#include "shale/test/machine_code/sass.h"

// Rules for properties that kernel sources intend, but a compiler may destroy. Each rule returns
// one line per violation in a kernel.
namespace shale::machine_code {

using Findings = std::vector<std::string>;

// Rule for loops with matmuls and exponentials: all exponentials are between the wait that leaves
// one matmul group pending and the wait for that group. They then overlap with the group.
Findings exponentials_beside_products(const Kernel& kernel);

// Rule for loops with matmuls and exponentials: a matmul is pending during all exponentials,
// rounding, stores to shared memory and barriers, so that the tensor cores stay busy.
Findings work_beside_products(const Kernel& kernel);

// One of the loops with matmuls and exponentials has at most `most` exponentials on the
// special-function pipe, because the others use FMA. It has at most `most_products` float
// multiplications, because sums are scaled elsewhere.
Findings few_exponentials(const Kernel& kernel, size_t most, size_t most_products);

// Nowhere do four 4-byte stores write adjacent words: they should be one 16-byte store.
Findings whole_stores(const Kernel& kernel);

// Loops with warpgroup matmuls move at most one register per six matmuls to a uniform register.
// Descriptors are thus computed in uniform registers.
Findings uniform_descriptors(const Kernel& kernel);

// The kernel has loops with 8-bit matmuls. They accumulate the results, and never wait for all
// matmul groups, so that one group stays pending.
Findings sums_beside_products(const Kernel& kernel);

// Inner loops have no integer division except by constants.
Findings no_division(const Kernel& kernel);

// No conversion uses the special-function pipe, where it takes four times as long as in the ALU.
Findings fast_rounding(const Kernel& kernel);

// Somewhere at most `most` instructions are between two TMA stores of boxes and include the four
// stmatrix of a box.
Findings boxes_from_registers(const Kernel& kernel, size_t most);

// Rule for kernels whose warpgroups alternate on the tensor cores: a warpgroup passes the turn on
// after its matmul loop, before it waits for its last matmuls.
Findings turns_pass_before_waits(const Kernel& kernel);

// An atomic operation fetches the next tile's number. Its first use waits for it, so the number is
// not used before copies of the current tile's operands have started.
Findings next_tile_behind_copies(const Kernel& kernel);

// The main loops, which fill and release pipeline stages, have no memory fence, even in clusters.
// Fences are needed only to join or leave a cluster, and where blocks share an output tile.
Findings stages_without_fences(const Kernel& kernel);

// The kernel has at most `most` instructions.
Findings within_budget(const Kernel& kernel, size_t most);

}  // namespace shale::machine_code
