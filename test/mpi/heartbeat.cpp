#include <chrono>
#include <numeric>
#include <thread>

#include "comm/heartbeat_internal.h"
#include "test/mpi/harness.h"

namespace shale::test {
namespace {

using comm::Heartbeat;

Heartbeat start() {
  std::vector<int> ranks(static_cast<size_t>(world().size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return Heartbeat(comm::MpiComm::split(MPI_COMM_WORLD, 0, world().rank()), ranks);
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

void leave(Heartbeat& heart) {
  while (!heart.leave()) std::this_thread::yield();
  CHECK_FALSE(heart.pending());
}

}  // namespace

TEST_CASE("a heartbeat names the ranks that have not called, then those that have not finished") {
  if (!world().uses_mpi()) return;
  Heartbeat heart = start();
  const int last = world().size() - 1;
  if (world().rank() == last && last > 0) {
    heart.beat();  // tells that it has issued nothing
  } else {
    heart.issued(call(0, "a"));
    wait_until([&] {
      heart.beat();
      return last == 0 || heart.late_ranks() == cat("rank ", last, " has not called it");
    });
  }
  if (world().rank() == last && last > 0) heart.issued(call(0, "a"));
  if (world().rank() == 0) heart.finished();
  CHECK(heart.in_flight() == (world().rank() == 0 ? 0u : 1u));
  if (world().rank() != 0) {
    // Rank 0 has come to its end, so that its news have all ranks' calls in them.
    wait_until([&] {
      heart.beat();
      return contains(heart.late_ranks(), "all ranks have called it; ") &&
             !contains(heart.late_ranks(), "0");
    });
    heart.finished();
  }
  leave(heart);
}

TEST_CASE("a heartbeat finds ranks that call something else") {
  if (!world().uses_mpi() || world().size() == 1) return;
  Heartbeat heart = start();
  const bool odd_one = world().rank() == world().size() - 1;
  heart.issued(call(0, "same"));
  heart.issued(call(1, odd_one ? "mine" : "yours"));
  std::string message;
  wait_until([&] {
    try {
      heart.beat();
    } catch (const CommError& error) {
      message = error.what();
    }
    return !message.empty();
  });
  CHECK(contains(message, "the first 2 collectives of rank "));
  CHECK(contains(message, odd_one ? "for 'mine'" : "for 'yours'"));
  leave(heart);
}

TEST_CASE("a heartbeat does not mind ranks that are ahead") {
  if (!world().uses_mpi()) return;
  Heartbeat heart = start();
  for (uint64_t k = 0; k < 200; ++k) {
    heart.issued(call(k, "step"));
    if (world().rank() % 2 == 0 || k % 7 == 0) heart.beat();
  }
  leave(heart);
}

}  // namespace shale::test
