#pragma once

#include <functional>

#include "descriptors.h"

namespace shale::test {

// Workspace size of every plan. An execution overwrites all of it.
inline constexpr int64_t kWorkspaceBytes = 96;

// Inputs of an execution. They are copies, because the descriptors may be destroyed before it runs.
struct Execution {
  std::vector<std::shared_ptr<Object>> kept;
  std::vector<Operation> operations;
  std::map<int64_t, char*> pointers;
  char* workspace = nullptr;
  int engine = 0;
};

// Prepares the execution of a plan. Throws Refused if the variant pack does not fit the plan.
Execution execution_of(const Object& plan, const Object& pack);

using Written = std::function<void(const void* data, size_t bytes)>;
// Computes in f64. Calls `tell` for the memory that it writes.
void execute(Execution& run, const Written& tell);

}  // namespace shale::test
