#pragma once

#include <span>
#include <string>

namespace shale::emulator {

class Block;
struct Fiber;

// Returns a message such as "axpby (elementwise/elementwise.cu:40): <what> [block (0,0,0), thread
// (33,0,0), at or after __syncthreads (elementwise/elementwise.cu:31)]". If self is null, the
// message names no thread.
std::string describe_failure(const Block& block, std::string what, const Fiber* self);

// Describes where threads wait: "threads 0-31, 40 wait at __syncthreads (x.cu:12); threads 32-39
// have ended".
std::string describe_threads(std::span<const Fiber> fibers);

// Returns the address of an instruction as "train_lm+0x1f30", for addr2line.
std::string describe_instruction(const void* address);

}  // namespace shale::emulator
