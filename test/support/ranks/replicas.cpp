#include "shale/test/support/ranks/replicas.h"

#include <cstring>

namespace shale::test {

std::vector<int> replica_counts() {
  std::vector<int> counts;
  for (int count = 2; count <= world().size(); ++count) {
    if (world().size() % count == 0) counts.push_back(count);
  }
  return counts;
}

std::vector<float> values_of(TinyRun& run) {
  std::vector<float> all;
  run.step().finish_update();
  run.parallel().full_state([&](const Parameter&, const View& value) {
    all.insert(all.end(), value.as<float>(), value.as<float>() + value.numel());
  });
  return all;
}

std::map<std::string, std::string> local_state(TinyRun& run) {
  std::map<std::string, std::string> bytes;
  for (const StatePart& part : run.parts()) bytes[part.name] += bytes_of(part);
  return bytes;
}

void check_resumes(const RunLayout& layout, OptimizerKind kind, const std::vector<int64_t>& saved,
                   int64_t more) {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    for (const int64_t at : saved) {
      CAPTURE(count, at);
      const SharedDir dir(*all);
      TinyRun run(replicas.groups, *all, layout, kind);
      run.train(at);
      run.save(dir / "checkpoints");
      const std::vector<float> want = run.train(more);
      TinyRun again(replicas.groups, *all, layout, kind);
      again.poison();
      again.load(dir / "checkpoints" + cat("/step_0000000", at));
      CHECK(again.train(more) == want);
      CHECK(local_state(again) == local_state(run));
    }
  }
}

std::vector<float> floats_of(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace shale::test
