#include <memory>
#include <vector>

#include "shale/comm/work.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {

TEST_CASE("a default Work is done") {
  const comm::Work work;
  CHECK(work.done());
  work.wait();
}

TEST_CASE("collectives in flight finish in the order in which they were given") {
  for (const comm::GroupOptions& options : group_variants()) {
    CAPTURE(name_of(options));
    const auto group = world().group(options);
    const int n = group->size();
    constexpr int kInFlight = 24;
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<comm::Work> works;
    // Each collective needs the result of the previous one, in the same buffer.
    const Buffer chain(*group, Place::kGroup, 4);
    *chain.as<int32_t>() = 1;
    for (int k = 0; k < kInFlight; ++k) {
      const int64_t count = k % 3 == 0 ? 5 : 9000 + k;
      buffers.push_back(
          std::make_unique<Buffer>(*group, k % 2 == 0 ? Place::kGroup : Place::kAny, count * 4));
      for (int64_t i = 0; i < count; ++i) {
        buffers.back()->as<int32_t>()[i] = static_cast<int32_t>(i + k * group->rank());
      }
      works.push_back(group->all_reduce_sum(make_view(buffers.back()->as<int32_t>(), {count}),
                                            {.tag = "many", .async = true}));
      if (k < 8) {
        works.push_back(
            group->all_reduce_sum(make_view(chain.as<int32_t>(), {1}), {.async = true}));
      }
      if (k % 5 == 4) {
        // A blocking call runs after all queued calls.
        int32_t one = 1;
        group->all_reduce_sum(make_view(&one, {1}));
        CHECK(one == n);
        CHECK(works.back().done());
      }
    }
    // Waits for the calls in reverse order, and twice for each call.
    for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
    for (const comm::Work& work : works) {
      CHECK(work.done());
      work.wait();
    }
    int32_t power = 1;
    for (int k = 0; k < 8; ++k) power *= n;
    CHECK(*chain.as<int32_t>() == power);
    for (int k = 0; k < kInFlight; ++k) {
      const int64_t count = k % 3 == 0 ? 5 : 9000 + k;
      const auto want = [&](int64_t i) {
        return static_cast<int32_t>(n * i + k * (n * (n - 1) / 2));
      };
      CHECK(first_difference(buffers[static_cast<size_t>(k)]->as<int32_t>(), count, want) == -1);
    }
  }
}

TEST_CASE("groups of different ranks take turns on one queue") {
  const auto group = world().group({.timeout_s = 60});
  const int n = group->size();
  const auto halves = group->split(group->rank() % 2, group->rank(), "halves");
  std::vector<int32_t> all(64), half(64);
  std::vector<comm::Work> works;
  for (int32_t k = 0; k < 64; ++k) {
    auto& a = all[static_cast<size_t>(k)] = group->rank() + k;
    auto& h = half[static_cast<size_t>(k)] = group->rank() + k;
    works.push_back(group->all_reduce_sum(make_view(&a, {1}), {.async = true}));
    works.push_back(halves->all_reduce_sum(make_view(&h, {1}), {.async = true}));
  }
  for (const comm::Work& work : works) work.wait();
  int32_t sum_all = 0, sum_half = 0, ranks_half = 0;
  for (int r = 0; r < n; ++r) {
    sum_all += r;
    if (r % 2 == group->rank() % 2) sum_half += r, ++ranks_half;
  }
  for (int32_t k = 0; k < 64; ++k) {
    CHECK(all[static_cast<size_t>(k)] == sum_all + n * k);
    CHECK(half[static_cast<size_t>(k)] == sum_half + ranks_half * k);
  }
}

TEST_CASE("a lane does not wait for what is queued in another") {
  for (comm::GroupOptions options : group_variants()) {
    CAPTURE(name_of(options));
    options.timeout_s = 60;
    const auto data = world().group(options);
    const auto model = data->split(0, data->rank(), "model", comm::Lane::kModel);
    const auto parts = model->split(data->rank() % 2, data->rank(), "parts");
    CHECK(model->options().lane == comm::Lane::kModel);
    CHECK(parts->options().lane == comm::Lane::kModel);
    for (int round = 0; round < 3; ++round) {
      std::vector<int32_t> queued(9000, 1);
      int32_t one = 1, part = 1;
      comm::Work work;
      const auto queue = [&] {
        work = data->all_reduce_sum(make_view(queued.data(), {9000}), {.async = true});
      };
      // Rank 0 first queues its sum in one lane. The other ranks first queue a sum in another lane.
      if (data->rank() == 0) queue();
      model->all_reduce_sum(make_view(&one, {1}));
      parts->all_reduce_sum(make_view(&part, {1}));
      if (data->rank() != 0) queue();
      work.wait();
      CHECK(one == data->size());
      CHECK(part == parts->size());
      CHECK(first_difference(queued.data(), 9000, [&](int64_t) { return data->size(); }) == -1);
    }
  }
}

TEST_CASE("split orders ranks by key") {
  const auto group = world().group({.timeout_s = 60});
  const int n = group->size();
  const auto reversed = group->split(0, n - group->rank(), "reversed");
  CHECK(reversed->size() == n);
  CHECK(reversed->rank() == n - 1 - group->rank());
  const auto texts = reversed->all_gather_bytes(std::to_string(group->rank()));
  for (int r = 0; r < n; ++r) CHECK(texts[static_cast<size_t>(r)] == std::to_string(n - 1 - r));

  const auto alone = group->split(group->rank(), 0, "alone");
  CHECK(alone->size() == 1);
  CHECK(alone->backend() == "self");
  float value = 3;
  alone->all_reduce_sum(make_view(&value, {1}), {.async = true}).wait();
  CHECK(value == 3);
}

TEST_CASE("time spent blocked is traced") {
  Tracer tracer;
  const auto group = world().group({.timeout_s = 60, .tracer = &tracer});
  if (group->size() == 1) {
    CHECK(group->backend() == "self");
    return;
  }
  const int64_t count = 1 << 20;
  const Buffer buffer(*group, Place::kAny, count * 4);
  group->all_reduce_sum(make_view(buffer.as<float>(), {count}));
  group->all_reduce_sum(make_view(buffer.as<float>(), {count}), {.async = true}).wait();
  CHECK(tracer.seconds("comm/wait") > 0);
}

TEST_CASE("a group may go while collectives that nobody waited for are in flight") {
  const int64_t count = 100'000;
  for (int i = 0; i < 3; ++i) {
    std::vector<float> values(static_cast<size_t>(count), 1.f);
    {
      const auto group = world().group({.timeout_s = 60});
      group->all_reduce_sum(make_view(values.data(), {count}), {.async = true});
    }
    CHECK(values.back() == static_cast<float>(world().size()));
  }
}

}  // namespace shale::test
