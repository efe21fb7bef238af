// Tests every pair of rank counts and every pair of ZeRO stages. Takes minutes; checkpoint.cpp has
// the short version.
#include <map>
#include <string>

#include "shale/base/text.h"
#include "shale/test/support/ranks/tiny_run.h"

namespace shale::test {
namespace {

using State = std::map<std::string, std::string>;  // bytes of whole tensors, by tensor name

// Sends rank 0's state to all ranks and returns it. Collective.
State shared_by_first(comm::ProcessGroup& all, const State& state) {
  std::string names;
  for (const auto& [name, bytes] : state) names += name + "\n";
  names = all.all_gather_bytes(names).front();
  State shared;
  for (size_t begin = 0, end = 0; (end = names.find('\n', begin)) != names.npos; begin = end + 1) {
    const std::string name = names.substr(begin, end - begin);
    const auto it = state.find(name);
    shared[name] =
        all.all_gather_bytes(it == state.end() || all.rank() > 0 ? "" : it->second).front();
  }
  return shared;
}

// Compares this rank's part of the state with `want` and sets `own_bytes` to the part's size.
// Returns the name of the first tensor that differs, or "".
std::string difference(TinyRun& run, const State& want, int64_t& own_bytes) {
  own_bytes = 0;
  for (const StatePart& part : run.parts()) {
    const std::string mine = bytes_of(part);
    const auto first = static_cast<size_t>(part.first * dtype_size(part.values.dtype()));
    if (want.at(part.name).substr(first, mine.size()) != mine) return part.name;
    own_bytes += part.values.bytes();
  }
  return {};
}

}  // namespace

TEST_CASE("a state saved by 1 to 8 ranks in any stage is the same on 1 to 8 in any stage",
          "[.][checkpoint_matrix]") {
  const auto all = world().group();
  const auto groups = groups_of_first_ranks(*all);
  int64_t pairs = 0;
  for (int n = 1; n <= all->size(); ++n) {
    for (const int from_stage : {0, 1, 2, 3}) {
      const SharedDir dir(*all);
      State state;
      if (comm::ProcessGroup* const from = groups[size_t(n)].get(); from != nullptr) {
        TinyRun run({.shard = from}, *from, {{.stage = from_stage}});
        run.train(2);
        run.save(dir.path());
        state = run.state();
      }
      const State want = shared_by_first(*all, state);
      int64_t want_bytes = 0;
      for (const auto& [name, bytes] : want) want_bytes += static_cast<int64_t>(bytes.size());
      REQUIRE(want_bytes > 0);
      for (int m = 1; m <= all->size(); ++m) {
        for (const int to_stage : {0, 1, 2, 3}) {
          ++pairs;
          comm::ProcessGroup* const to = groups[size_t(m)].get();
          if (to == nullptr) continue;
          CAPTURE(n, from_stage, m, to_stage);
          TinyRun run({.shard = to}, *to, {{.stage = to_stage}});
          run.poison();
          run.load(CheckpointFolder(dir.path()).path_of(2));
          int64_t own_bytes = 0;
          REQUIRE(difference(run, want, own_bytes) == "");
          // The ranks together hold the whole state; in stage 0 each rank holds the whole state.
          if (to_stage > 0) to->all_reduce_sum(make_view(&own_bytes, {1}));
          REQUIRE(own_bytes >= want_bytes);
        }
      }
      all->barrier("loaded");
    }
    if (all->rank() == 0)
      WARN("saved by " << n << " ranks: all " << pairs << " pairs the same so far");
  }
  CHECK(pairs == int64_t{16} * all->size() * all->size());
}

}  // namespace shale::test
