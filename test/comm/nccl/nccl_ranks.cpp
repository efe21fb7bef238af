// Tests that apply to NCCL only. nccl_on_one_gpu.sh runs them on a machine with one GPU.
#include <chrono>
#include <thread>

#include "shale/kernels/simt/engine/options.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

const comm::GroupOptions kOptions = {.name = "nccl", .timeout_s = 60};

// Waits up to a minute for the group to fail, and returns its message; "" if it did not fail.
std::string wait_for_failure(comm::ProcessGroup& group) {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() < start + std::chrono::seconds(60)) {
    try {
      group.host();
    } catch (const CommError& error) {
      return error.what();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {};
}

}  // namespace

TEST_CASE("NCCL asked for where it cannot be is an error that says why", "[nccl]") {
  const comm::GroupOptions options = {.timeout_s = 60, .transport = comm::Transport::kNccl};
  const auto cpu = make_cpu_backend();
  const std::string message = message_of<UnavailableError>([&] { world().group(options, *cpu); });
  CHECK(contains(message, "NCCL cannot be used"));
  CHECK(contains(message, to_string(cpu->device())));
}

TEST_CASE("collectives over NCCL follow each other and the caller's stream", "[nccl]") {
  for_nccl(kOptions, [](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    CHECK(group.backend() == "nccl");
    const int n = group.size();
    const int64_t count = 300'001;
    const Buffer chain(setup, count * 4), other(setup, count * 4);
    std::fill_n(chain.as<int32_t>(), count, 1);
    std::fill_n(other.as<int32_t>(), count, group.rank());
    chain.give();
    other.give();
    std::vector<comm::Work> works;
    for (int k = 0; k < 4; ++k) {
      const comm::CollectiveOptions options = {.async = true, .stream = setup.stream};
      works.push_back(group.all_reduce_sum(chain.view<int32_t>(count), options));
      works.push_back(group.broadcast(other.view<int32_t>(count), k % n, options));
    }
    for (const comm::Work& work : works) work.wait();
    chain.take();
    other.take();
    int32_t power = 1;
    for (int k = 0; k < 4; ++k) power *= n;
    CHECK(first_difference(chain.as<int32_t>(), count, [&](int64_t) { return power; }) == -1);
    CHECK(first_difference(other.as<int32_t>(), count, [](int64_t) { return 0; }) == -1);
    CHECK(works.back().done());
  });
}

TEST_CASE("a collective over NCCL holds multiprocessors from its call to the wait for it",
          "[nccl]") {
  for_nccl(kOptions, [](const Setup& setup) {
    const ReservedSms& held = setup.device->held();
    const Buffer buffer(setup, 400);
    std::fill_n(buffer.as<int32_t>(), 100, 1);
    buffer.give();
    const auto sum = [&](bool async) {
      return setup.group.all_reduce_sum(buffer.view<int32_t>(100),
                                        {.async = async, .stream = setup.stream});
    };
    CHECK(held.most() == 0);
    const comm::Work first = sum(true), second = sum(true);
    CHECK(held.most() > 0);
    first.wait();
    CHECK(held.most() > 0);
    second.wait();
    CHECK(held.most() == 0);
    sum(false);
    CHECK(held.most() == 0);
    buffer.take();
  });
}

TEST_CASE("a deterministic all-reduce over NCCL has the bits of reduce-scatter and all-gather",
          "[nccl]") {
  comm::GroupOptions options = kOptions;
  options.deterministic = true;
  for_nccl(options, [](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    const int64_t slice = 4096, count = slice * group.size();
    const Buffer whole(setup, count * 4), sharded(setup, count * 4), ragged(setup, count * 4);
    for (const Buffer* buffer : {&whole, &sharded, &ragged}) {
      for (int64_t i = 0; i < count; ++i) {
        buffer->as<float>()[i] = order_value<float>(group.rank(), i);
      }
      buffer->give();
    }
    const comm::CollectiveOptions on_stream = {.stream = setup.stream};
    group.all_reduce_sum(whole.view<float>(count), on_stream);
    const View own = sharded.view<float>(count).flat(group.rank() * slice, slice);
    group.reduce_scatter_sum(sharded.view<float>(count), own, on_stream);
    group.all_gather(own, sharded.view<float>(count), on_stream);
    // count - 1 is not a multiple of the number of ranks.
    group.all_reduce_sum(ragged.view<float>(count - 1), on_stream);
    whole.take(), sharded.take(), ragged.take();
    CHECK(std::memcmp(whole.as<float>(), sharded.as<float>(), size_t(count) * 4) == 0);
    for (int64_t i = 0; i < count - 1; ++i) {
      // NCCL may add these in another order. The bound covers n - 1 roundings of sums of n values
      // below 32768.
      REQUIRE(std::abs(ragged.as<float>()[i] - whole.as<float>()[i]) <= group.size() * 0.03125f);
    }
  });
}

TEST_CASE("groups over NCCL split, and give memory that is registered", "[nccl]") {
  for_nccl(kOptions, [](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    const int n = group.size();
    const auto reversed = group.split(0, n - group.rank(), "reversed");
    CHECK(reversed->backend() == "nccl");
    CHECK(reversed->rank() == n - 1 - group.rank());
    const auto alone = group.split(group.rank(), 0, "alone");
    const Setup parts[] = {{*reversed, setup.options, setup.place, setup.device, setup.stream},
                           {*alone, setup.options, setup.place, setup.device, setup.stream}};
    for (const Setup& part : parts) {
      const Buffer in(part, 400), out(part, 400 * part.group.size());
      std::fill_n(in.as<int32_t>(), 100, part.group.rank());
      in.give();
      part.group.all_gather(in.view<int32_t>(100), out.view<int32_t>(100 * part.group.size()),
                            {.stream = part.stream});
      out.take();
      for (int r = 0; r < part.group.size(); ++r) CHECK(out.as<int32_t>()[100 * r + 99] == r);
    }
  });
}

TEST_CASE("a rank that does not call a collective over NCCL is named after the time-out",
          "[nccl]") {
  if (world().size() == 1) return;
  comm::GroupOptions options = kOptions;
  options.timeout_s = 3;
  for_nccl(options, [](const Setup& setup) {
    const int last = setup.group.size() - 1;
    const Buffer buffer(setup, 400);
    buffer.give();
    if (setup.group.rank() != last) {
      std::string message;
      try {
        setup.group.all_reduce_sum(buffer.view<float>(100),
                                   {.tag = "the lost one", .async = true, .stream = setup.stream});
      } catch (const CommError& error) {
        message = error.what();  // the call itself fails if NCCL has not connected the ranks yet
      }
      if (message.empty()) message = wait_for_failure(setup.group);
      CHECK(contains(message, "the lost one"));
      CHECK(contains(message, cat("rank ", last, " has not called it")));
    }
    world().group({.timeout_s = 60})->barrier("all have seen it");
  });
}

TEST_CASE("captured collectives over NCCL run and count at each replay", "[nccl]") {
  for_nccl(kOptions, [](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    const int64_t count = 300'001;
    const Buffer chain(setup, count * 4);
    std::fill_n(chain.as<int32_t>(), count, 1);
    chain.give();
    const auto add_up = [&] {
      group
          .all_reduce_sum(chain.view<int32_t>(count),
                          {.tag = "captured", .async = true, .stream = setup.stream})
          .wait();
    };
    add_up();  // the first call makes NCCL connect the ranks
    const int64_t counted = group.traffic().totals().calls;
    setup.device->begin_capture(setup.stream);
    add_up();
    add_up();
    const auto graph = setup.device->end_capture(setup.stream);
    const std::vector<comm::CollectiveCall> calls = group.take_captured();
    CHECK(calls.size() == 2);
    CHECK(group.traffic().totals().calls == counted);
    for (int replay = 0; replay < 2; ++replay) {
      graph->launch(setup.stream);
      group.replayed(calls, setup.stream);
    }
    chain.take();
    int32_t power = 1;
    for (int k = 0; k < 5; ++k) power *= group.size();
    CHECK(first_difference(chain.as<int32_t>(), count, [&](int64_t) { return power; }) == -1);
    CHECK(group.traffic().totals().calls == counted + 4);
  });
}

TEST_CASE("a rank that does not replay its graph over NCCL is named after the time-out", "[nccl]") {
  if (world().size() == 1) return;
  comm::GroupOptions options = kOptions;
  options.timeout_s = 3;
  for_nccl(options, [](const Setup& setup) {
    const int last = setup.group.size() - 1;
    const Buffer buffer(setup, 400);
    buffer.give();
    const auto add_up = [&] {
      setup.group.all_reduce_sum(buffer.view<float>(100),
                                 {.tag = "the captured one", .stream = setup.stream});
    };
    add_up();
    setup.device->begin_capture(setup.stream);
    add_up();
    const auto graph = setup.device->end_capture(setup.stream);
    const std::vector<comm::CollectiveCall> calls = setup.group.take_captured();
    if (setup.group.rank() != last) {
      graph->launch(setup.stream);
      setup.group.replayed(calls, setup.stream);
      const std::string message = wait_for_failure(setup.group);
      CHECK(contains(message, "the captured one"));
      CHECK(contains(message, cat("rank ", last, " has not called it")));
    }
    world().group({.timeout_s = 60})->barrier("all have seen it");
  });
}

TEST_CASE("ranks that call different collectives over NCCL are told so", "[nccl]") {
  if (world().size() == 1) return;
  for_nccl(kOptions, [](const Setup& setup) {
    const Buffer buffer(setup, 400);
    buffer.give();
    const bool odd_one = setup.group.rank() == 0;
    setup.group.all_reduce_sum(
        buffer.view<float>(100),
        {.tag = odd_one ? "mine" : "yours", .async = true, .stream = setup.stream});
    CHECK(contains(wait_for_failure(setup.group), "ranks disagree"));
    world().group({.timeout_s = 60})->barrier("all have seen it");
  });
}

}  // namespace shale::test
