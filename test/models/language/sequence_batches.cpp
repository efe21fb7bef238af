#include "shale/models/language/sequence_batches.h"

#include <memory>

#include "shale/runtime/data/tokens/batches.h"
#include "shale/test/support/batches.h"

namespace shale::test {
namespace {

constexpr int64_t kLength = 64;

// Samples whose tokens encode sequence and position.
class Numbered final : public TrainSamples {
 public:
  int64_t samples_per_epoch() const override { return 1'000'000; }
  int64_t targets(int64_t) const override { return kLength; }
  void read(int64_t position, const TokenRow& row) const override {
    for (size_t t = 0; t < row.inputs.size(); ++t) {
      row.inputs[t] = static_cast<int32_t>(position * kLength + static_cast<int64_t>(t));
      row.targets[t] = row.inputs[t] + 1;
    }
  }
};

}  // namespace

TEST_CASE("workers that cut sequences make the batches of one thread", "[data]") {
  const BatchLayout layout{.global_batch = 4, .micro_batch = 4};
  const BatchSource whole = train_batches(
      {.samples = std::make_shared<Numbered>(), .seq_len = kLength, .layout = layout});
  for (const int first : {0, 1}) {
    CAPTURE(first);
    const comm::SequenceParts parts{.shards = 2, .first = first, .count = 1};
    check_workers_agree(models::cut_batches(whole, parts), 500);
  }
  check_workers_agree(models::cut_batches(whole, {.shards = 2, .count = 2}), 500);
}

}  // namespace shale::test
