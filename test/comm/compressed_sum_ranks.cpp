// Tests averaging over ranks with one bit per element: results, error feedback and traffic.
#include "shale/comm/sums/compressed_sum.h"

#include <cmath>

#include "shale/base/error.h"
#include "shale/kernels/one_bit.h"
#include "shale/runtime/optim/shard.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

using comm::Traffic;
using kernels::kSignBlock;
using kernels::kSignWords;

// Numbers of elements: less than a block, one block, none, ragged, more blocks than ranks.
const std::vector<int64_t> kLengths = {700, 1024, 0, 3000, 7168};
constexpr double kBlockBytes = 4 * kSignWords;

int64_t blocks_of(const std::vector<int64_t>& lengths) {
  int64_t blocks = 0;
  for (const int64_t length : lengths) blocks += kernels::sign_blocks(length);
  return blocks;
}

// Vectors that are averaged over the ranks in several rounds.
class Means {
 public:
  Means(comm::ProcessGroup& group, Context& context, std::vector<int64_t> lengths)
      : group_(group), context_(context), lengths_(std::move(lengths)) {
    const ShardReplicas place = {.rank = group.rank(), .size = group.size()};
    owned_ = place.owned(lengths_);
    for (size_t i = 0; i < lengths_.size(); ++i) {
      vectors_.push_back({.value = zeros(context, {lengths_[i]}, DType::kF32),
                          .mask = from_host<float>(context, mask(lengths_[i]), {lengths_[i]}),
                          .owed = zeros(context, {lengths_[i]}, DType::kF32),
                          .owner_owed = zeros(context, {owned_[i].count}, DType::kF32)});
    }
  }

  // Masks every seventh element.
  static std::vector<float> mask(int64_t n) {
    std::vector<float> mask(size_t(n), 1.f);
    for (size_t i = 0; i < mask.size(); i += 7) mask[i] = 0;
    return mask;
  }
  // Returns rank `rank`'s input of length n for a round.
  static std::vector<float> given(int rank, int round, size_t vector, int64_t n) {
    return randn<float>(n, uint64_t(1000 * round + 10 * rank) + vector);
  }

  // Averages all vectors over the ranks and returns the results.
  std::vector<std::vector<float>> mean(int round) {
    for (size_t i = 0; i < vectors_.size(); ++i) {
      const auto values = given(group_.rank(), round, i, lengths_[i]);
      vectors_[i].value = from_host<float>(context_, values, {lengths_[i]});
    }
    comm::compressed_mean(group_, context_.exec(), vectors_,
                          [](const comm::Work& work) { work.wait(); });
    std::vector<std::vector<float>> means;
    for (const OneBitVector& vector : vectors_) means.push_back(to_host<float>(vector.value));
    return means;
  }

  // Returns, for each element, the mean of all ranks' error feedback plus the error feedback of the
  // rank that owns the element.
  std::vector<double> owed(size_t i) {
    const auto n = size_t(lengths_[i]);
    const std::vector<float> mine = to_host<float>(vectors_[i].owed);
    const std::vector<float> owner = to_host<float>(vectors_[i].owner_owed);
    std::vector<double> sum(n);
    for (size_t k = 0; k < n; ++k) sum[k] = double(mine[k]) / group_.size();
    for (size_t k = 0; k < owner.size(); ++k) sum[size_t(owned_[i].first) + k] += double(owner[k]);
    group_.host().all_reduce_sum(make_view(sum.data(), {lengths_[i]}));
    return sum;
  }

  const std::vector<int64_t>& lengths() const { return lengths_; }
  std::vector<OneBitVector>& vectors() { return vectors_; }

 private:
  comm::ProcessGroup& group_;
  Context& context_;
  std::vector<int64_t> lengths_;
  std::vector<ElementRange> owned_;
  std::vector<OneBitVector> vectors_;
};

bool same_on_all(comm::ProcessGroup& group, const std::vector<float>& values) {
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  for (const std::string& other : group.all_gather_bytes(bytes)) {
    if (other != bytes) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("every element's mean has one owner, and owners have equal shares") {
  for (const int size : {1, 2, 3, 4, 50}) {
    std::vector<std::vector<int>> owners;
    for (const int64_t length : kLengths) owners.emplace_back(size_t(length));
    const int64_t share = (blocks_of(kLengths) + size - 1) / size;
    for (int rank = 0; rank < size; ++rank) {
      const auto ranges = ShardReplicas{.rank = rank, .size = size}.owned(kLengths);
      REQUIRE(ranges.size() == kLengths.size());
      int64_t blocks = 0;
      for (size_t i = 0; i < ranges.size(); ++i) {
        for (int64_t k = 0; k < ranges[i].count; ++k) ++owners[i][size_t(ranges[i].first + k)];
        blocks += kernels::sign_blocks(ranges[i].count);
        if (ranges[i].count > 0) CHECK(ranges[i].first % kSignBlock == 0);
      }
      CHECK(blocks <= share);
    }
    for (const auto& of_vector : owners) {
      for (const int count : of_vector) REQUIRE(count == 1);
    }
  }
}

TEST_CASE("means are the same on all ranks, and with what is owed they are the exact ones") {
  const auto group = world().group({.timeout_s = 60});
  Context context(small_context(1));
  Means means(*group, context, kLengths);
  constexpr int kRounds = 6;
  std::vector<std::vector<double>> told, exact;
  for (const int64_t length : kLengths) {
    told.emplace_back(size_t(length));
    exact.emplace_back(size_t(length));
  }
  for (int round = 0; round < kRounds; ++round) {
    const auto got = means.mean(round);
    for (size_t i = 0; i < got.size(); ++i) {
      CHECK(same_on_all(*group, got[i]));
      for (size_t k = 0; k < got[i].size(); ++k) told[i][k] += double(got[i][k]);
      for (int rank = 0; rank < group->size(); ++rank) {
        const auto given = Means::given(rank, round, i, kLengths[i]);
        for (size_t k = 0; k < given.size(); ++k) exact[i][k] += double(given[k]) / group->size();
      }
    }
  }
  for (size_t i = 0; i < kLengths.size(); ++i) {
    const std::vector<double> owed = means.owed(i);
    const std::vector<float> mask = Means::mask(kLengths[i]);
    for (size_t k = 0; k < owed.size(); ++k) {
      CAPTURE(i, k);
      // Each round has five roundings of numbers below 16. Masked elements are 0 and have no error.
      const double want = mask[k] == 0 ? 0 : exact[i][k];
      REQUIRE(std::abs(told[i][k] + owed[k] - want) <= kRounds * 5 * 16 * 0x1p-24);
      if (mask[k] == 0) REQUIRE(told[i][k] == 0);
    }
  }
}

TEST_CASE("a mean of one bit sends 132 bytes a block each way, 1/31 of an all-reduce of f32") {
  const auto group = world().group({.timeout_s = 60});
  Context context(small_context(1));
  const double n = group->size(), others = (n - 1) / n;
  Means means(*group, context, kLengths);
  group->reset_traffic();
  means.mean(0);
  const double rounded = std::ceil(double(blocks_of(kLengths)) / n) * n;
  const auto sent = [&](Traffic traffic) { return group->traffic().totals(traffic).sent_bytes; };
  CHECK(sent(Traffic::kGradients) == Approx(2 * others * rounded * kBlockBytes));
  CHECK(sent(Traffic::kParameters) + sent(Traffic::kActivations) + sent(Traffic::kControl) == 0);

  const int64_t blocks = 12 * group->size();
  std::vector<float> values(size_t(blocks * kSignBlock));
  group->reset_traffic();
  group->all_reduce_sum(make_view(values.data(), {blocks * kSignBlock}),
                        {.traffic = Traffic::kGradients});
  const double whole = sent(Traffic::kGradients);
  Means large(*group, context, {blocks * kSignBlock});
  group->reset_traffic();
  large.mean(0);
  CHECK(sent(Traffic::kGradients) * 31 <= whole);
}

TEST_CASE("a mean refuses what another rank owes, and sends nothing for nothing") {
  const auto group = world().group({.timeout_s = 60});
  Context context(small_context(1));
  Means none(*group, context, {0, 0});
  group->reset_traffic();
  none.mean(0);
  CHECK(group->traffic().totals().calls == 0);
  Means means(*group, context, {5000});
  means.vectors()[0].owner_owed = zeros(context, {5001}, DType::kF32);
  const std::string message = message_of<ShapeError>([&] { means.mean(0); });
  CHECK(contains(message, "owner_owed is [5001]"));
}

}  // namespace shale::test
