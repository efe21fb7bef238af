#include <chrono>
#include <stdexcept>

#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

using comm::GroupOptions;
using comm::ProcessGroup;

// Checks that every rank of the group gets a CommError that contains these words.
template <typename Fn>
void check_disagreement(ProcessGroup& group, Fn&& call, const std::vector<std::string>& words) {
  const std::string message = message_of<CommError>(call);
  CAPTURE(message);
  for (const std::string& word : words) CHECK(contains(message, word));
  // After the error the group refuses calls, so that it cannot give wrong data.
  CHECK(contains(message_of<CommError>([&] { group.barrier(); }), "cannot be used any more"));
}

std::vector<float> ones(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count), 1.f);
}

}  // namespace

TEST_CASE("ranks that call different collectives all get an error that names them") {
  if (world().size() < 2) {
    SUCCEED("needs two ranks");
    return;
  }
  for (const GroupOptions& options : group_variants()) {
    CAPTURE(name_of(options));
    const int odd = world().rank() == 1 ? 1 : 0;
    auto values = ones(20'000);
    const auto view = [&](int64_t count) { return make_view(values.data(), {count}); };
    {
      const auto group = world().group(options);
      group->barrier();
      check_disagreement(
          *group, [&] { group->all_reduce_sum(view(10'000 + odd), {.tag = "grad"}); },
          {"rank 1 calls", "all_reduce_sum 1 of fp32[10000] for 'grad'", "fp32[10001]"});
    }
    {
      const auto group = world().group(options);
      check_disagreement(*group,
                         [&] {
                           if (odd != 0) {
                             group->broadcast(view(100), 0);
                           } else {
                             group->all_reduce_sum(view(100));
                           }
                         },
                         {"broadcast 0", "all_reduce_sum 0"});
    }
    {
      const auto group = world().group(options);
      check_disagreement(*group, [&] { group->broadcast(view(100), odd); }, {"from 0", "from 1"});
    }
    {
      const auto group = world().group(options);
      check_disagreement(*group,
                         [&] { group->all_reduce_sum(view(8), {.tag = odd != 0 ? "a" : "b"}); },
                         {"'a'", "'b'"});
    }
    {
      const auto group = world().group(options);
      check_disagreement(
          *group, [&] { group->all_reduce_sum(view(8), {.tag = "a gradient", .step = 4 + odd}); },
          {"for 'a gradient' of step 4", "of step 5"});
    }
    {
      const auto group = world().group(options);
      std::vector<double> wide(8);
      check_disagreement(
          *group, [&] { group->all_reduce_sum(odd != 0 ? make_view(wide.data(), {8}) : view(8)); },
          {"fp64[8]", "fp32[8]"});
    }
  }
}

TEST_CASE("an error of a queued collective comes out of wait, every time") {
  if (world().size() < 2) {
    SUCCEED("needs two ranks");
    return;
  }
  const auto group = world().group({.timeout_s = 60});
  auto values = ones(8);
  const auto work =
      group->all_reduce_sum(make_view(values.data(), {4 + group->rank() % 2}), {.async = true});
  CHECK_THROWS_AS(work.wait(), CommError);
  CHECK_THROWS_AS(work.wait(), CommError);
  CHECK(work.done());
  const auto next = group->all_reduce_sum(make_view(values.data(), {8}), {.async = true});
  CHECK_THROWS_AS(next.wait(), CommError);
}

TEST_CASE("a rank that does not come is named after the time-out") {
  if (world().size() < 2) {
    SUCCEED("needs two ranks");
    return;
  }
  for (GroupOptions options : group_variants()) {
    CAPTURE(name_of(options));
    options.timeout_s = 0.4;
    const auto meet = world().group({.timeout_s = 60});
    const auto group = world().group(options);
    const int missing = group->size() - 1;
    group->barrier("warm-up");
    meet->barrier();
    if (group->rank() != missing) {
      auto values = ones(9000);
      const std::string message = message_of<CommError>(
          [&] { group->all_reduce_sum(make_view(values.data(), {9000}), {.tag = "blocks.2"}); });
      CAPTURE(message);
      CHECK(contains(message, cat(missing)));
      CHECK(contains(message, "all_reduce_sum 1 of fp32[9000] for 'blocks.2'"));
      CHECK(contains(message, "0.4 s"));
    }
    meet->barrier();
    if (group->rank() == missing && options.ranks_per_node == 0) {
      // A rank that calls too late gets the error immediately.
      CHECK_THROWS_AS(group->barrier("late"), CommError);
    }
    meet->barrier();
  }
}

TEST_CASE("waiting for a rank that has left is an error, long before the time-out") {
  if (world().size() < 2) {
    SUCCEED("needs two ranks");
    return;
  }
  const auto meet = world().group({.timeout_s = 60});
  auto group = world().group({.timeout_s = 60});
  group->barrier();
  const auto start = std::chrono::steady_clock::now();
  if (group->rank() == 1) {
    group.reset();
  } else {
    const auto message = message_of<CommError>([&] { group->barrier("end"); });
    CHECK(contains(message, "rank 1 has left while barrier 1 for 'end' waits for it"));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  }
  meet->barrier();
}

TEST_CASE("an exception unwinds past a collective in flight without waiting for the others") {
  if (world().size() < 2) {
    SUCCEED("needs two ranks");
    return;
  }
  const auto meet = world().group({.timeout_s = 60});
  auto group = world().group({.timeout_s = 60});
  if (group->rank() == 0) {
    const auto start = std::chrono::steady_clock::now();
    try {
      const auto own = std::move(group);
      // The buffer is destroyed before the group.
      const Buffer buffer(*own, Place::kGroup, 4 << 20);
      own->all_reduce_sum(make_view(buffer.as<float>(), {1 << 20}), {.async = true});
      throw std::runtime_error("unwind");
    } catch (const std::runtime_error&) {
      CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
    }
  }
  meet->barrier();
}

}  // namespace shale::test
