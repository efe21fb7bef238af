#include <cstring>
#include <set>

#include "shale/models/training/report/tensor_histograms.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/tiny_run.h"

namespace shale::test {
namespace {

using models::HistogramOf;

std::vector<Parameter*> parameters_of(const std::vector<OptimShard>& shards) {
  std::vector<Parameter*> parameters;
  for (const OptimShard& shard : shards) {
    for (const OptimSpan& span : shard.spans) {
      if (parameters.empty() || parameters.back() != span.parameter) {
        parameters.push_back(span.parameter);
      }
    }
  }
  return parameters;
}

models::Histogram whole_histogram(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  models::ValueCounts counts;
  counts.add(values);
  return models::histogram_of(counts, 1);
}

}  // namespace

TEST_CASE("histograms of ranks that share parameters are those of the whole, without padding") {
  const auto group = world().group({.timeout_s = 60});
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    TinyRun run({.shard = group.get()}, *group, {.parallel = {.stage = stage}});
    run.train(1);
    const auto& shards = run.parallel().shards();
    const std::vector<Parameter*> parameters = parameters_of(shards);
    const auto used = [](const Parameter& parameter) {
      const int64_t rows = parameter.whole[0];
      return static_cast<size_t>(parameter.numel() / rows * (rows - parameter.padding_rows));
    };
    for (Parameter* parameter : parameters) parameter->padding_rows = parameter->whole[0] / 3;
    const auto found = tensor_histograms(HistogramOf::kParameters, parameters, shards, *group, 1);
    const auto gradients =
        tensor_histograms(HistogramOf::kGradients, parameters, shards, *group, 2);
    const auto state = run.state();
    REQUIRE(found.size() == parameters.size());
    for (size_t i = 0; i < found.size(); ++i) {
      CAPTURE(found[i].name);
      const std::string& bytes = state.at(found[i].name);
      const size_t count = used(*parameters[i]);
      const models::Histogram want = whole_histogram(bytes.substr(0, count * sizeof(float)));
      CHECK(found[i].histogram.counts == want.counts);
      CHECK(found[i].histogram.right_edges == want.right_edges);
      CHECK(found[i].histogram.least == want.least);
      CHECK(found[i].histogram.most == want.most);
      CHECK(found[i].histogram.sum == Approx(want.sum).margin(1e-6));
      CHECK(gradients[i].histogram.count == static_cast<double>(count));
    }
  }
}

}  // namespace shale::test
