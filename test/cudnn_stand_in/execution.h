#pragma once

#include <functional>

#include "descriptors.h"

namespace shale::test {

// Workspace of every plan, which overwrites all of it.
inline constexpr int64_t kWorkspaceBytes = 96;

// Inputs of an execution, copied from its descriptors, which may be gone when it runs.
struct Execution {
  std::vector<std::shared_ptr<Object>> kept;
  std::vector<Operation> operations;
  std::map<int64_t, char*> pointers;
  char* workspace = nullptr;
  int engine = 0;
};

// Returns the execution of a plan. Throws Refused for a variant pack that does not fit the plan.
Execution execution_of(const Object& plan, const Object& pack);

using Written = std::function<void(const void* data, size_t bytes)>;
// Computes in f64, from memory to memory, and calls `tell` for the memory that it writes.
void execute(Execution& run, const Written& tell);

}  // namespace shale::test
