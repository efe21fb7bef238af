#pragma once

#include <functional>

#include "descriptors.h"

namespace shale::test {

inline constexpr int64_t kWorkspaceBytes = 96;  // of every plan, which overwrites all of it

// Data of an execution, independent of its descriptors, which may be gone when it runs.
struct Execution {
  std::vector<std::shared_ptr<Object>> kept;
  std::vector<Operation> operations;
  std::map<int64_t, char*> pointers;
  char* workspace = nullptr;
  int engine = 0;
};

// Throws Refused for a variant pack that does not fit the plan.
Execution execution_of(const Object& plan, const Object& pack);

using Written = std::function<void(const void* data, size_t bytes)>;
// Computes in f64, from memory to memory, and reports the memory that it writes to `tell`.
void execute(Execution& run, const Written& tell);

}  // namespace shale::test
