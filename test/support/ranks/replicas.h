#pragma once

#include <map>
#include <string>
#include <vector>

#include "shale/comm/mesh.h"
#include "shale/test/support/ranks/tiny_run.h"

namespace shale::test {

// Hybrid sharding with `count` replicas; the ranks of each replica shard the state.
struct Replicas {
  Replicas(comm::ProcessGroup& all, int count)
      : mesh(all, {{"replica", count}, {"node", all.size() / count}}),
        groups{.shard = &mesh.group("node"), .replicate = &mesh.group("replica")} {}
  comm::Mesh mesh;
  comm::ShardGroups groups;
};

// Numbers of replicas, from two on, that divide the number of ranks.
std::vector<int> replica_counts();

// Returns the values of all parameters, one after another. Collective.
std::vector<float> values_of(TinyRun& run);

// Returns the bytes of all tensors that this rank holds, by name.
std::map<std::string, std::string> local_state(TinyRun& run);

// For all numbers of replicas: saves a run after each number of steps in `saved`, loads it into
// another run, trains both for `more` steps, and checks that their bits are equal. Collective.
void check_resumes(const RunLayout& layout, OptimizerKind kind, const std::vector<int64_t>& saved,
                   int64_t more);

std::vector<float> floats_of(const std::string& bytes);

}  // namespace shale::test
