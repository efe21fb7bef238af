// Tests every way in which a rank's collective may differ from the collectives of other ranks. All
// ranks must report it immediately.
#include <chrono>

#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

using comm::CollectiveOptions;
using comm::ProcessGroup;

// How the call of the odd rank differs from the call of the other ranks.
enum class Mistake { kKind, kCount, kDtype, kOp, kRoot, kGatherRoot, kOrder, kMissing };

constexpr Mistake kMistakes[] = {Mistake::kKind,  Mistake::kCount,  Mistake::kDtype,
                                 Mistake::kOp,    Mistake::kRoot,   Mistake::kGatherRoot,
                                 Mistake::kOrder, Mistake::kMissing};

struct Buffers {
  static constexpr int64_t kCount = 64;
  std::vector<float> a = std::vector<float>(kCount, 1.f), b = a;
  std::vector<double> wide = std::vector<double>(kCount, 1.0);
  std::vector<float> gathered;
  explicit Buffers(int ranks) : gathered(static_cast<size_t>(kCount * ranks)) {}
};

void call(ProcessGroup& group, Buffers& buffers, Mistake mistake, bool odd) {
  const auto view = [](auto& values, int64_t count) { return make_view(values.data(), {count}); };
  const View a = view(buffers.a, Buffers::kCount), b = view(buffers.b, Buffers::kCount);
  const CollectiveOptions first{.tag = "first"}, second{.tag = "second"};
  switch (mistake) {
    case Mistake::kKind:
      if (odd) {
        group.all_gather(a, view(buffers.gathered, Buffers::kCount * group.size()), first);
      } else {
        group.all_reduce_sum(a, first);
      }
      return;
    case Mistake::kCount:
      group.all_reduce_sum(view(buffers.a, Buffers::kCount - (odd ? 1 : 0)), first);
      return;
    case Mistake::kDtype:
      group.all_reduce_sum(odd ? view(buffers.wide, Buffers::kCount) : a, first);
      return;
    case Mistake::kOp:
      if (odd) {
        group.all_reduce_max(a, first);
      } else {
        group.all_reduce_sum(a, first);
      }
      return;
    case Mistake::kRoot: group.broadcast(a, odd ? 1 : 0, first); return;
    case Mistake::kGatherRoot:
      group.gather(a, view(buffers.gathered, Buffers::kCount * group.size()), odd ? 1 : 0, first);
      return;
    case Mistake::kOrder:
      group.all_reduce_sum(odd ? b : a, odd ? second : first);
      group.all_reduce_sum(odd ? a : b, odd ? first : second);
      return;
    case Mistake::kMissing:
      if (!odd) group.all_reduce_sum(a, first);
      group.all_reduce_sum(b, second);
      return;
  }
}

void check_all_mistakes(const comm::GroupOptions& options) {
  const auto meet = world().group({.timeout_s = 60});
  for (const Mistake mistake : kMistakes) {
    for (const int odd : {0, 1, world().size() - 1}) {
      CAPTURE(name_of(options), static_cast<int>(mistake), odd);
      const auto group = world().group(options);
      Buffers buffers(group->size());
      meet->barrier();
      const auto start = std::chrono::steady_clock::now();
      const std::string message =
          message_of<CommError>([&] { call(*group, buffers, mistake, group->rank() == odd); });
      CAPTURE(message);
      CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
      CHECK(contains(message, "ranks disagree: "));
      CHECK(contains(message, cat("rank ", odd, " calls ")));
      meet->barrier();
    }
  }
}

}  // namespace

TEST_CASE("a pair that disagrees on an all_to_all_v is named on all ranks",
          "[many_ranks][mismatch]") {
  const int ranks = world().size();
  if (ranks < 2) {
    SUCCEED("needs two ranks");
    return;
  }
  const auto meet = world().group({.timeout_s = 60});
  for (const int ranks_per_node : {0, 1, 2}) {
    if (ranks_per_node == 2 && ranks == 2) continue;
    const auto group = world().group({.timeout_s = 30, .ranks_per_node = ranks_per_node});
    std::vector<int64_t> in_counts(static_cast<size_t>(ranks), 3), out_counts = in_counts;
    if (group->rank() == ranks - 1) in_counts[0] = 5;
    std::vector<float> in(static_cast<size_t>(3 * ranks + 2)), out(in.size());
    const int64_t given = 3 * ranks + (group->rank() == ranks - 1 ? 2 : 0);
    const std::string message = message_of<CommError>([&] {
      group->all_to_all_v(make_view(in.data(), {given}), in_counts,
                          make_view(out.data(), {3 * ranks}), out_counts, {.tag = "experts"});
    });
    CAPTURE(ranks_per_node, message);
    CHECK(contains(message, cat("rank ", ranks - 1,
                                " to rank 0: 5 elements, rank 0 expects 3 in all_to_all_v 0 of "
                                "fp32 for 'experts'")));
    meet->barrier();
  }
}

TEST_CASE("whatever a rank calls differently, all ranks report it within seconds",
          "[many_ranks][mismatch]") {
  if (world().size() < 2) {
    SUCCEED("needs two ranks");
    return;
  }
  check_all_mistakes({.name = "node", .timeout_s = 30});
  check_all_mistakes({.name = "nodes of 1", .timeout_s = 30, .ranks_per_node = 1});
  if (world().size() > 2) {
    check_all_mistakes({.name = "nodes of 2", .timeout_s = 30, .ranks_per_node = 2});
  }
}

}  // namespace shale::test
