#pragma once

#include <map>
#include <string>
#include <vector>

#include "shale/comm/mesh.h"
#include "shale/test/support/ranks/tiny_run.h"

namespace shale::test {

// So many replicas, of the ranks that are left.
struct Replicas {
  Replicas(comm::ProcessGroup& all, int count)
      : mesh(all, {{"replica", count}, {"node", all.size() / count}}),
        groups{.shard = &mesh.group("node"), .replicate = &mesh.group("replica")} {}
  comm::Mesh mesh;
  comm::ShardGroups groups;
};

// Numbers of replicas that the world can be cut into, from two on.
std::vector<int> replica_counts();

// The values of all parameters, one after another. Collective.
std::vector<float> values_of(TinyRun& run);

// The bytes of all that this rank holds, by name.
std::map<std::string, std::string> local_state(TinyRun& run);

// With all numbers of replicas, a run that is saved after each of these numbers of steps and loaded
// by another takes `more` steps with the bits of the one that goes on. Collective.
void check_resumes(const RunLayout& layout, OptimizerKind kind, const std::vector<int64_t>& saved,
                   int64_t more);

std::vector<float> floats_of(const std::string& bytes);

}  // namespace shale::test
