#include <chrono>
#include <numeric>
#include <thread>

#include "shale/comm/watch/group_progress_internal.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

using comm::GroupProgress;

GroupProgress start() {
  std::vector<int> ranks(static_cast<size_t>(world().size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return GroupProgress(comm::MpiComm::split(MPI_COMM_WORLD, 0, world().rank()), ranks);
}

comm::Fingerprint call(uint64_t sequence, const char* tag) {
  const View view = make_view(static_cast<float*>(nullptr), {0});
  return comm::fingerprint(
      {.op = comm::CollectiveOp::kAllReduceSum, .in = view, .out = view, .tag = tag}, sequence);
}

template <typename Enough>
void wait_until(Enough&& enough) {
  const auto start = std::chrono::steady_clock::now();
  while (!enough()) {
    REQUIRE(std::chrono::steady_clock::now() < start + std::chrono::seconds(60));
    std::this_thread::yield();
  }
}

void leave(GroupProgress& progress) {
  while (!progress.leave()) std::this_thread::yield();
  CHECK_FALSE(progress.pending());
}

}  // namespace

TEST_CASE("the progress of a group names ranks that have not called, then those not finished") {
  if (!world().uses_mpi()) return;
  GroupProgress progress = start();
  const int last = world().size() - 1;
  if (world().rank() == last && last > 0) {
    progress.exchange();  // tells the other ranks that this rank has called nothing yet
  } else {
    progress.issued(call(0, "a"));
    wait_until([&] {
      progress.exchange();
      return last == 0 || progress.late_ranks() == cat("rank ", last, " has not called it");
    });
  }
  if (world().rank() == last && last > 0) progress.issued(call(0, "a"));
  if (world().rank() == 0) progress.finished();
  CHECK(progress.in_flight() == (world().rank() == 0 ? 0u : 1u));
  if (world().rank() != 0) {
    // Rank 0 finishes only after it knows the calls of all ranks, so its messages describe them.
    wait_until([&] {
      progress.exchange();
      return contains(progress.late_ranks(), "all ranks have called it; ") &&
             !contains(progress.late_ranks(), "0");
    });
    progress.finished();
  }
  leave(progress);
}

TEST_CASE("the progress of a group finds ranks that call something else") {
  if (!world().uses_mpi() || world().size() == 1) return;
  GroupProgress progress = start();
  const bool odd_one = world().rank() == world().size() - 1;
  progress.issued(call(0, "same"));
  progress.issued(call(1, odd_one ? "mine" : "yours"));
  std::string message;
  wait_until([&] {
    try {
      progress.exchange();
    } catch (const CommError& error) {
      message = error.what();
    }
    return !message.empty();
  });
  CHECK(contains(message, "the first 2 collectives of rank "));
  CHECK(contains(message, odd_one ? "for 'mine'" : "for 'yours'"));
  leave(progress);
}

TEST_CASE("the progress of a group does not mind ranks that are ahead") {
  if (!world().uses_mpi()) return;
  GroupProgress progress = start();
  for (uint64_t k = 0; k < 200; ++k) {
    progress.issued(call(k, "step"));
    if (world().rank() % 2 == 0 || k % 7 == 0) progress.exchange();
  }
  leave(progress);
}

}  // namespace shale::test
