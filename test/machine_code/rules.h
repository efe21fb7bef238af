#pragma once

#include <string>
#include <vector>

#include "shale/test/machine_code/sass.h"

// What the sources of kernels intend and a compiler may undo. Each rule gives a line for everything
// that it finds wrong with a kernel.
namespace shale::machine_code {

using Findings = std::vector<std::string>;

// In loops with products and exponentials: between the wait that leaves one group of products under
// way and the wait for that one stand all exponentials of the loop, so that they run beside it.
Findings exponentials_beside_products(const Kernel& kernel);

// In loops with products and exponentials: exponentials, rounding, stores to shared memory and
// barriers stand where a product has been issued and not been waited for, so that the tensor cores
// have something to do meanwhile.
Findings work_beside_products(const Kernel& kernel);

// Of the loops with products and exponentials one has at most so many of the latter by their own
// pipe, and no more products of floats than that: others by FMA, and sums are scaled elsewhere.
Findings few_exponentials(const Kernel& kernel, size_t most, size_t most_products);

// No four stores of 4 bytes to neighbouring words of one address: they were one of 16 bytes.
Findings whole_stores(const Kernel& kernel);

// In loops with a warpgroup's products: at most one register in six products is moved to a
// uniform one, so descriptors are computed there.
Findings uniform_descriptors(const Kernel& kernel);

// In loops with products of 8 bits, which there are: their results are added up, and no wait is for
// all groups of products, so that one is under way meanwhile.
Findings sums_beside_products(const Kernel& kernel);

// In inner loops: no integer is divided by another that is not a constant.
Findings no_division(const Kernel& kernel);

// No conversion by the pipe of the special functions, which takes four times as long as the ALU's.
Findings fast_rounding(const Kernel& kernel);

// Four stmatrix fill a box of results: from one box's departure to the next one's there is a way of
// at most so many instructions.
Findings boxes_from_registers(const Kernel& kernel, size_t most);

// In kernels whose warpgroups take turns at the tensor cores: behind the loop with products the
// turn is passed on, and then comes the wait for the last products.
Findings turns_pass_before_waits(const Kernel& kernel);

// The number of the next tile, which an atomic operation brings, is used behind a copy of this
// one's operands at the earliest: what uses it waits for it.
Findings next_tile_behind_copies(const Kernel& kernel);

// Stages are filled and given back, to the blocks of a cluster too, without a wait until the whole
// GPU sees what the thread wrote: that is for who comes to a cluster, leaves it, or shares a tile.
Findings stages_without_fences(const Kernel& kernel);

// At most so many instructions.
Findings within_budget(const Kernel& kernel, size_t most);

}  // namespace shale::machine_code
