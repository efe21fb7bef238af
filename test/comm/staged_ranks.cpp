// Tests streams, which only groups in device memory have.
#include "shale/comm/link/device_resources.h"
#include "shale/test/support/ranks/devices.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

// Returns true if a sum over ranks sees values that were copied to the device just before it.
bool sum_is_right(DeviceBackend& device) {
  const comm::DeviceStream stream(device);
  const comm::GroupOptions options{.timeout_s = 60, .staging_bytes = 1 << 10};
  const auto group = world().group(options, device);
  const int64_t count = 9001;
  const Buffer buffer({*group, options, Place::kDevice, &device, stream.get()}, count * 4);
  std::fill_n(buffer.as<int32_t>(), count, group->rank() + 1);
  buffer.give();
  group->all_reduce_sum(buffer.view<int32_t>(count), {.stream = stream.get()});
  buffer.take();
  const int n = group->size();
  const auto want = [&](int64_t) { return n * (n + 1) / 2; };
  return first_difference(buffer.as<int32_t>(), count, want) == -1;
}

}  // namespace

TEST_CASE("a device that ignores waits between streams gives wrong sums", "[staged]") {
  // All ranks reorder their streams by the same policy, each with another seed.
  int wrong = 0;
  for (const emulator::Options& order : {emulator::Options{.order = emulator::Order::kLifo},
                                         {.order = emulator::Order::kRandom, .seed = 7}}) {
    const auto device = make_emu_backend({.type = DeviceType::kEmu, .arch = 80}, order);
    CHECK(sum_is_right(*device));
    ForgetfulDevice forgetful(order);
    wrong += sum_is_right(forgetful) ? 0 : 1;
  }
  // Without the waits, sums must be wrong, except in a group of one rank, which needs no waits.
  CHECK((wrong > 0) == (world().size() > 1));
}

TEST_CASE("collectives through host memory refuse to be captured, those of one rank run at replays",
          "[staged]") {
  const auto device = make_emu_backend({.type = DeviceType::kEmu, .arch = 80});
  const comm::DeviceStream stream(*device);
  const comm::GroupOptions options{.timeout_s = 60};
  const auto group = world().group(options, *device);
  const Setup setup{*group, options, Place::kDevice, device.get(), stream.get()};
  const int n = group->size();
  const Buffer in(setup, 400), out(setup, 400 * n);
  const auto gather = [&] {
    group->all_gather(in.view<int32_t>(100), out.view<int32_t>(100 * n), {.stream = stream.get()});
  };
  device->begin_capture(stream.get());
  if (n > 1) {
    CHECK(contains(message_of<CommError>(gather), "use NCCL"));
  } else {
    gather();
  }
  const auto graph = device->end_capture(stream.get());
  const std::vector<comm::CollectiveCall> calls = group->take_captured();
  CHECK(group->traffic().totals().calls == 0);
  std::fill_n(in.as<int32_t>(), 100, group->rank() + 1);
  in.give();
  if (n > 1) {
    gather();
  } else {
    graph->launch(stream.get());
    group->replayed(calls, stream.get());
  }
  out.take();
  for (int r = 0; r < n; ++r) CHECK(out.as<int32_t>()[100 * r + 99] == r + 1);
  CHECK(group->traffic().totals().calls == 1);
}

TEST_CASE("collectives of a device follow each other and the caller's stream", "[staged]") {
  for_all_staged([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    const int n = group.size();
    const int64_t count = 3001;
    const Buffer chain(setup, count * 4), other(setup, count * 4), copy(setup, count * 4);
    std::fill_n(chain.as<int32_t>(), count, 1);
    std::fill_n(other.as<int32_t>(), count, group.rank());
    chain.give();
    other.give();
    // Each sum reads the result of the previous one. The host waits only at the end.
    std::vector<comm::Work> works;
    for (int k = 0; k < 4; ++k) {
      works.push_back(group.all_reduce_sum(chain.view<int32_t>(count),
                                           {.async = true, .stream = setup.stream}));
      works.push_back(group.broadcast(other.view<int32_t>(count), k % n,
                                      {.async = true, .stream = setup.stream}));
    }
    group.barrier("takes its turn");
    for (const comm::Work& work : works) work.wait();
    for (const comm::Work& work : works) CHECK(work.done());
    // Work that is queued after wait() reads the results.
    setup.device->copy(copy.view<int32_t>(count).data, chain.view<int32_t>(count).data, count * 4,
                       setup.stream);
    copy.take();
    other.take();
    int32_t power = 1;
    for (int k = 0; k < 4; ++k) power *= n;
    CHECK(first_difference(copy.as<int32_t>(), count, [&](int64_t) { return power; }) == -1);
    CHECK(first_difference(other.as<int32_t>(), count, [](int64_t) { return 0; }) == -1);
  });
}

TEST_CASE("outputs may still be in use on the caller's stream when the call comes", "[staged]") {
  for_all_staged([](const Setup& setup) {
    const int64_t count = 2000;
    const int n = setup.group.size();
    const Buffer in(setup, count * 4), out(setup, count * n * 4), kept(setup, count * n * 4);
    std::fill_n(out.as<int32_t>(), count * n, -1);
    std::fill_n(in.as<int32_t>(), count, setup.group.rank());
    out.give();
    in.give();
    const View target = out.view<int32_t>(count * n);
    // This copy is queued before the call, so it must see the old values.
    setup.device->copy(kept.view<int32_t>(count * n).data, target.data, size_t(target.bytes()),
                       setup.stream);
    const comm::Work work = setup.group.all_gather(in.view<int32_t>(count), target,
                                                   {.async = true, .stream = setup.stream});
    work.wait();
    out.take();
    kept.take();
    CHECK(first_difference(kept.as<int32_t>(), count * n, [](int64_t) { return -1; }) == -1);
    const auto want = [&](int64_t i) { return static_cast<int32_t>(i / count); };
    CHECK(first_difference(out.as<int32_t>(), count * n, want) == -1);
  });
}

TEST_CASE("groups of a device split, talk and count like others", "[staged]") {
  for_all_staged([](const Setup& setup) {
    comm::ProcessGroup& group = setup.group;
    const int n = group.size();
    CHECK(group.backend() == (n == 1 ? "self" : "staged"));
    CHECK(group.host().backend() == (n == 1 ? "self" : "mpi"));
    const auto alone = group.split(group.rank(), 0, "alone");
    CHECK(alone->backend() == "self");
    const Buffer from(setup, 400), to(setup, 400);
    std::fill_n(from.as<int32_t>(), 100, 7);
    from.give();
    alone->all_gather(from.view<int32_t>(100), to.view<int32_t>(100), {.stream = setup.stream});
    to.take();
    CHECK(to.as<int32_t>()[99] == 7);

    const auto reversed = group.split(0, n - group.rank(), "reversed");
    CHECK(reversed->rank() == n - 1 - group.rank());
    const auto texts = reversed->all_gather_bytes(std::to_string(group.rank()));
    for (int r = 0; r < n; ++r) CHECK(texts[size_t(r)] == std::to_string(n - 1 - r));

    // A device group sends its data and checks through a host group, in chunks. Only the device
    // group's own calls count.
    const auto same = group.split(0, group.rank(), "same");
    const int64_t count = 60'000;
    const Buffer large(setup, count * 4);
    same->all_reduce_sum(large.view<int32_t>(count),
                         {.stream = setup.stream, .traffic = comm::Traffic::kGradients});
    same->barrier();
    CHECK(same->traffic().totals(comm::Traffic::kGradients).calls == 1);
    CHECK(same->traffic().totals(comm::Traffic::kControl).calls == 1);
    CHECK(same->traffic().totals().sent_bytes == Approx(2. * count * 4 * (n - 1) / n));
  });
}

TEST_CASE("on the CPU a device's group is that of the host", "[staged]") {
  const auto device = make_cpu_backend();
  const auto group = world().group({.timeout_s = 60}, *device);
  CHECK(group->backend() == (group->size() == 1 ? "self" : "mpi"));
  CHECK(&group->host() == group.get());
}

}  // namespace shale::test
