// Tests what launches over NCCL cost the host, and how they end if a rank is missing. A stand-in
// for NCCL counts calls.
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>

#include "counts.h"
#include "shale/comm/collective_slices.h"
#include "shale/comm/groups/group_self.h"
#include "shale/comm/nccl/group_nccl_internal.h"
#include "shale/comm/nccl/nccl_library_internal.h"
#include "shale/comm/nccl/nccl_link_internal.h"
#include "shale/comm/node/node_mailbox.h"
#include "shale/comm/watch/group_progress_internal.h"
#include "shale/comm/work_state.h"
#include "shale/runtime/tensor/device_marks.h"
#include "shale/runtime/tensor/nvtx_ranges_internal.h"
#include "shale/test/support/catch.h"

// ---- Counters of this program's locks, threads and sleeps ----

namespace {

thread_local int64_t locks_taken = 0, locks_now = 0, threads_started = 0, times_slept = 0;

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static const auto real = next<int(pthread_mutex_t*)>("pthread_mutex_lock");
  ++locks_taken;
  ++locks_now;
  return real(mutex);
}
int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  static const auto real = next<int(pthread_mutex_t*)>("pthread_mutex_unlock");
  --locks_now;
  return real(mutex);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
  static const auto real =
      next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  ++threads_started;
  return real(thread, attributes, start, argument);
}
int nanosleep(const timespec* time, timespec* left) {
  static const auto real = next<int(const timespec*, timespec*)>("nanosleep");
  ++times_slept;
  return real(time, left);
}
int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* left) {
  static const auto real = next<int(clockid_t, int, const timespec*, timespec*)>("clock_nanosleep");
  ++times_slept;
  return real(clock, flags, time, left);
}
int64_t shale_test_locks_held() {
  return locks_now;
}
extern int64_t shale_test_events_made;

}  // extern "C"

extern std::string shale_test_ranges;

namespace shale::test {
namespace {

using Clock = std::chrono::steady_clock;

// A GPU that is always idle.
class IdleDevice final : public DeviceBackend {
 public:
  Device device() const override { return {}; }  // a CPU device, so its clock is the host's
  MemoryProvider& memory() override { return memory_; }
  MemoryProvider& host_memory() override { return memory_; }
  void pin(void*, size_t) override {}
  void unpin(void*) noexcept override {}
  void* create_stream() override { return &streams_.emplace_back(); }
  void destroy_stream(void*) noexcept override {}
  void synchronize(void*) override {}
  void* record_event(void*) override { return this; }
  void wait_event(void*, void*) override {}
  bool event_done(void*) override { return true; }
  void synchronize_event(void*) override {}
  void destroy_event(void*) noexcept override {}
  void copy(void*, const void*, size_t, void*) override {}

 private:
  comm::SharedMemory memory_;
  std::deque<char> streams_;
};

NcclCounts& counts() {
  static const auto get = [] {
    void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    const auto of_stand_in =
        reinterpret_cast<NcclCounts* (*)()>(dlsym(library, "shale_test_nccl_counts"));
    REQUIRE(of_stand_in != nullptr);  // without this function, the search path finds a real NCCL
    return of_stand_in;
  }();
  return *get();
}

struct Fixture {
  explicit Fixture(double timeout_s = 60, Tracer* tracer = nullptr) {
    counts().stall = false;
    for (auto* count : {&counts().launches, &counts().threads, &counts().locks_held,
                        &counts().launches_on_parents, &counts().parents, &counts().children,
                        &counts().calls_while_busy, &counts().max_ctas, &counts().revoked,
                        &counts().freed, &counts().freed_in_use}) {
      *count = 0;
    }
    counts().async_error = ncclSuccess;
    counts().version = 0;
    const comm::GroupOptions options = {.name = "gpus", .timeout_s = timeout_s, .tracer = tracer};
    group = std::make_unique<comm::NcclGroup>(
        context, std::make_unique<comm::SelfGroup>(context, options), device);
  }
  comm::Work all_reduce(bool async = true) {
    return group->all_reduce_sum(make_view(values.data(), {4}),
                                 {.tag = "gradient", .async = async, .stream = &device});
  }

  IdleDevice device;
  std::shared_ptr<comm::WorldContext> context = std::make_shared<comm::WorldContext>();
  std::array<float, 4> values{};
  std::unique_ptr<comm::NcclGroup> group;
};

// A HostGroup as seen by rank 0 of four. The other ranks are simulated: they contribute the same
// values as rank 0, and send messages only to each other.
class FirstOfFour final : public comm::HostGroup {
 public:
  FirstOfFour(std::shared_ptr<comm::WorldContext> context, const comm::GroupOptions& options)
      : HostGroup(0, 4, options), context_(std::move(context)) {}
  std::string_view backend() const override { return "first of four"; }
  MemoryProvider& memory() override { return context_->memory; }
  void execute(const comm::CollectiveCall& call, bool) override {
    const auto bytes = static_cast<size_t>(call.in.bytes());
    const auto slices = call.op == comm::CollectiveOp::kAllGather ? size_t{4} : size_t{1};
    for (size_t i = 0; i < slices; ++i) {
      std::memmove(static_cast<std::byte*>(call.out.data) + i * bytes, call.in.data, bytes);
    }
  }
  std::unique_ptr<comm::GroupProgress> make_progress() override { return nullptr; }
  std::unique_ptr<comm::HostGroup> split_host(int, int, const comm::GroupOptions& part) override {
    return std::make_unique<comm::SelfGroup>(context_, part);
  }
  std::vector<comm::LinkEnd> open_mailboxes(std::span<const comm::LinkSpec> specs) override {
    return std::vector<comm::LinkEnd>(specs.size());
  }

 protected:
  comm::Work submit(const comm::CollectiveCall& call, bool) override {
    execute(call, /*blocking=*/true);
    return comm::Work();
  }

 private:
  std::shared_ptr<comm::WorldContext> context_;
};

// A link between two ranks whose ends are both in this process.
struct LinkedEnds {
  explicit LinkedEnds(double timeout_s = 60)
      : group(timeout_s),
        parent({}, 0, 2,
               {.group_name = "stages",
                .device = &group.device,
                .timeout_s = [timeout_s] { return timeout_s; }}),
        labels(comm::SharedSegment::create(comm::NodeMailbox::bytes(label_spec()))) {
    sender = end(/*sends=*/true, timeout_s);
    receiver = end(/*sends=*/false, timeout_s);
  }
  static comm::LinkSpec spec() { return {.receiver = 1, .chunk = 1, .capacity_bytes = 16}; }
  static comm::LinkSpec label_spec() {
    return {.receiver = 1, .chunk = 1, .slots = comm::NcclLink::kAhead};
  }
  std::unique_ptr<comm::NcclLink> end(bool sends, double timeout_s) {
    comm::LinkEnd end{.options = {.spec = label_spec(),
                                  .sends = sends,
                                  .receiver_world = 1,
                                  .group_name = "stages",
                                  .timeout_s = timeout_s}};
    auto memory = comm::SharedSegment::attach(labels.address());
    REQUIRE(memory);
    end.mailbox = std::make_unique<comm::NodeMailbox>(std::move(*memory), label_spec(), sends,
                                                      comm::wait_policy(true, true));
    const comm::NcclOptions options{.group_name = "stages",
                                    .device = &group.device,
                                    .timeout_s = [timeout_s] { return timeout_s; },
                                    .max_ctas = comm::NcclLink::kCtas};
    auto comm = std::make_unique<comm::NcclComm>(parent, 0, sends ? 0 : 1, options);
    return std::make_unique<comm::NcclLink>(group.context, std::move(end), spec(), std::move(comm),
                                            group.device,
                                            std::make_shared<comm::DeviceStream>(group.device));
  }
  View view() { return make_view(group.values.data(), {4}); }
  static comm::MessageId id(int micro_batch) {
    return {.step = 12, .micro_batch = micro_batch, .chunk = 1};
  }
  comm::Work send(int k) { return sender->send(view(), id(k), &group.device); }
  comm::Work receive(int k) { return receiver->receive(view(), id(k), &group.device); }

  Fixture group;
  comm::NcclParent parent;
  comm::SharedSegment labels;
  std::unique_ptr<comm::NcclLink> sender, receiver;
};

// Waits some seconds for work to fail and returns the error message; empty if it does not fail.
std::string failure_of(const comm::Work& work) {
  for (int i = 0; i < 5000; ++i) {
    try {
      work.wait();
    } catch (const CommError& error) {
      return error.what();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

std::string message_of_launch(Fixture& fixture) {
  try {
    fixture.all_reduce();
  } catch (const CommError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("the stand-in's launch on a communicator that does not block starts a thread") {
  const Fixture fixture;
  const comm::NcclLibrary& nccl = comm::NcclLibrary::get();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclUniqueId id{};
  REQUIRE(nccl.comm_init_rank_config(&comm, 1, id, 0, &config) == ncclInProgress);
  const auto wait = [&] {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) nccl.comm_get_async_error(comm, &state);
    CHECK(state == ncclSuccess);
  };
  wait();
  CHECK(nccl.all_reduce(nullptr, nullptr, 0, ncclFloat, ncclSum, comm, nullptr) == ncclInProgress);
  CHECK(counts().threads == 1);
  wait();
  // When ncclCommSplit returns, the split has only been started, even for a rank without a color.
  ncclConfig_t blocking = NCCL_CONFIG_INITIALIZER;
  for (const int color : {NCCL_SPLIT_NOCOLOR, 0}) {
    ncclComm_t child = comm;
    CHECK(nccl.comm_split(comm, color, 0, &child, &blocking) == ncclSuccess);
    CHECK(child == nullptr);
    CHECK(nccl.comm_split(comm, color, 0, &child, &blocking) == ncclInvalidArgument);
    wait();
    CHECK((child != nullptr) == (color == 0));
    if (child != nullptr) nccl.comm_abort(child);
  }
  CHECK(counts().calls_while_busy == 2);
  nccl.comm_abort(comm);
}

TEST_CASE("a rank at neither end of several links takes part in the split of each") {
  Fixture fixture;
  const comm::GroupOptions options = {.name = "stages", .timeout_s = 60};
  comm::NcclGroup group(fixture.context, std::make_unique<FirstOfFour>(fixture.context, options),
                        fixture.device);
  std::vector<comm::LinkSpec> specs;
  for (const auto& [sender, receiver] : {std::pair(1, 2), {2, 3}, {3, 2}, {2, 1}}) {
    specs.push_back({.sender = sender, .receiver = receiver, .chunk = 1, .capacity_bytes = 16});
  }
  const auto links = group.make_links(specs);
  CHECK(links.size() == 4);
  CHECK(std::none_of(links.begin(), links.end(), [](const auto& link) { return link != nullptr; }));
  CHECK(counts().calls_while_busy == 0);
}

TEST_CASE("a group starts and splits on parents that do not block, and launches on none of them") {
  Fixture fixture;
  CHECK(counts().parents == 1);
  CHECK(counts().children == 1);
  const auto half = fixture.group->split(0, 0, "half");
  CHECK(counts().parents == 1);
  CHECK(counts().children == 2);
  const auto quarter = half->split(0, 0, "quarter");
  CHECK(counts().parents == 2);
  CHECK(counts().children == 3);
  std::array<float, 4> values{};
  for (comm::ProcessGroup* group :
       {static_cast<comm::ProcessGroup*>(fixture.group.get()), half.get(), quarter.get()}) {
    const View view = make_view(values.data(), {4});
    const comm::CollectiveOptions options{.stream = &fixture.device};
    group->all_reduce_sum(view, options);
    group->reduce_sum(view, 0, options);
    std::array<float, 4> out{};
    group->all_gather(view, make_view(out.data(), {4}), options);
    group->gather(view, make_view(out.data(), {4}), 0, options);
    group->all_to_all(view, make_view(out.data(), {4}), options);
    const std::array<int64_t, 1> four = {4};
    group->all_to_all_v(view, four, make_view(out.data(), {4}), four, options);
  }
  CHECK(counts().launches == 18);
  CHECK(counts().launches_on_parents == 0);
}

TEST_CASE("an NCCL before 2.26.2 is refused with both versions") {
  const Fixture fixture;
  counts().version = NCCL_VERSION(2, 25, 1);
  std::string message;
  try {
    comm::NcclLibrary::load();
  } catch (const UnavailableError& error) {
    message = error.what();
  }
  CHECK(message == "nccl: libnccl.so.2 has version 2.25.1, expected 2.26.2 or later");
  counts().version = NCCL_VERSION(2, 26, 2);
  CHECK_NOTHROW(comm::NcclLibrary::load());
}

TEST_CASE("memory of a group is that of ncclMemAlloc, which takes little more than was asked for") {
  Fixture fixture;
  std::vector<void*> memory;
  constexpr int64_t kUnit = int64_t{11} << 20;  // number of gradients in a layer
  for (int layer = 0; layer < 12; ++layer)
    memory.push_back(fixture.group->memory().allocate(kUnit));
  CHECK(counts().memory <= 12 * kUnit * 12 / 10);
  for (void* unit : memory) fixture.group->memory().free(unit, kUnit);
  CHECK(counts().memory == 0);
}

TEST_CASE("a communicator that fails in the background ends the group, with the reason") {
  Fixture fixture;
  const comm::Work work = fixture.all_reduce();
  counts().async_error = ncclRemoteError;
  CHECK(contains(failure_of(work), "group 'gpus': a collective: an error of the stand-in"));
  CHECK_FALSE(message_of_launch(fixture).empty());
  counts().async_error = ncclSuccess;
}

TEST_CASE("collectives and links have a maximum of thread blocks, which is what they reserve") {
  {
    const Fixture without_links;
    CHECK(counts().max_ctas == 16);
  }
  LinkedEnds ends;
  ReservedSms& sms = ends.group.device.held();
  CHECK(counts().max_ctas == 2);
  CHECK(sms.planned() == 16 + 2 * 2);  // both ends of the link are in this process
  CHECK(sms.most() == 0);
  {
    const comm::Work sent = ends.send(0), received = ends.receive(0);
    CHECK(sms.most() == 2 * 2);
    const comm::Work sum = ends.group.all_reduce();
    CHECK(sms.most() == 16 + 2 * 2);
    sum.wait(), sent.wait(), received.wait();
  }
  CHECK(sms.most() == 0);
  sms.limit(132);
  sms.limit(114);  // another rank's GPU has fewer SMs
  CHECK(sms.total() == 114);
}

TEST_CASE("a launch is one call of the library, with no thread, no sleep, and no lock held") {
  Fixture fixture;
  fixture.all_reduce().wait();
  counts().launches = 0;
  const int64_t locks = locks_taken, threads = threads_started, slept = times_slept;
  constexpr int kLaunches = 1000;
  for (int i = 0; i < kLaunches; ++i) fixture.all_reduce();
  CHECK(counts().launches == kLaunches);
  CHECK(counts().threads == 0);
  CHECK(threads_started == threads);
  CHECK(times_slept == slept);
  CHECK(counts().locks_held == 0);
  // A launch takes four locks: for traffic statistics, for the watchdog's record, to reserve SMs
  // and to release them.
  CHECK(locks_taken - locks <= 4 * kLaunches);
}

TEST_CASE("a launch costs the host less than 5 us above the library's own") {
  Fixture fixture;
  for (const bool async : {true, false}) {
    double least = 1;
    for (int batch = 0; batch < 50; ++batch) {
      constexpr int kLaunches = 200;
      const auto start = Clock::now();
      for (int i = 0; i < kLaunches; ++i) fixture.all_reduce(async);
      const std::chrono::duration<double> time = Clock::now() - start;
      least = std::min(least, time.count() / kLaunches);
    }
    CAPTURE(async, least);
    CHECK(least < 5e-6);
  }
}

TEST_CASE(
    "a launch that waits for a rank is ended after the time-out, and nothing is freed under it") {
  Fixture fixture(/*timeout_s=*/0.2);
  fixture.all_reduce();
  counts().stall = true;
  const auto start = Clock::now();
  const std::string message = message_of_launch(fixture);
  CAPTURE(message);
  CHECK(Clock::now() - start < std::chrono::seconds(5));
  CHECK(contains(message, "waited 0.2 s in all_reduce_sum 1 of fp32[4] for 'gradient'"));
  // After the failure the group is unusable.
  CHECK(contains(message_of_launch(fixture), "waited 0.2 s"));
  fixture.group.reset();
  CHECK(counts().revoked == 1);
  CHECK(counts().freed == 2);
  CHECK(counts().freed_in_use == 0);
}

TEST_CASE("while a launch waits, another thread can give the group up at once") {
  Fixture fixture;
  const comm::Work work = fixture.all_reduce();
  counts().stall = true;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    work.state()->give_up();
  });
  const auto start = Clock::now();
  CHECK(contains(message_of_launch(fixture), "given up"));
  CHECK(Clock::now() - start < std::chrono::seconds(5));
  other.join();
  CHECK(counts().freed_in_use == 0);
}

TEST_CASE("scopes are ranges of NVTX for a profiler that is there") {
  NvtxRanges ranges;
  shale_test_ranges.clear();
  {
    const TraceScope outer(&ranges, "backward");
    const TraceScope inner(&ranges, std::string_view("gemm and more").substr(0, 4));
  }
  CHECK(shale_test_ranges == "backward(gemm())");
}

TEST_CASE("a GPU's clock reads pairs of events, and uses them again") {
  IdleDevice device;
  int other = 0;
  shale_test_events_made = 0;
  const auto clock = make_cuda_stream_clock(device.device());
  const size_t first = clock->mark(&device);
  for (int i = 0; i < 20; ++i) {
    clock->mark(&other);
    clock->mark(&device);
    clock->read();
  }
  // The stand-in's events are a millisecond apart.
  CHECK(clock->seconds(first, first + 1) == Approx(1e-3));
  CHECK(clock->seconds(first, first + 40) == Approx(40e-3));
  CHECK(clock->seconds(first + 40, first + 39) == Approx(-1e-3));
  CHECK(shale_test_events_made <= 4);
}

TEST_CASE("a trace has a collective when the device ran it, once, and what waited for it") {
  Timeline timeline;
  Fixture fixture(60, &timeline);
  DeviceMarks marks(fixture.device, &fixture.device,
                    make_cuda_stream_clock(fixture.device.device()));
  marks.anchor();
  timeline.start({.marks = &marks, .stream = &fixture.device});
  fixture.context->timeline = &timeline;
  fixture.context->recent.listen([&timeline](const comm::RecentCollectives::Entry& entry) {
    comm::add_slice(timeline, entry, 0);
  });
  fixture.all_reduce().wait();
  // After this time the watchdog has seen that the work has ended.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  fixture.context->recent.listen({});
  fixture.context->timeline = nullptr;
  timeline.stop();
  marks.anchor();
  const TraceRecord record = timeline.take([&](size_t mark) { return marks.nanoseconds(mark); });
  const auto& slices = record.tracks.at("collectives: gpus");
  REQUIRE(slices.size() == 1);
  CHECK(record.names[slices[0].name] == "all_reduce_sum");
  CHECK(slices[0].end > slices[0].begin);
  const TraceRecord::About& about = record.about.at(static_cast<size_t>(slices[0].about));
  CHECK(about.flow != 0);
  CHECK(about.texts ==
        std::vector<std::pair<std::string, std::string>>{{"group", "gpus"}, {"for", "gradient"}});
  const auto& waits = record.tracks.at("device");
  REQUIRE(waits.size() == 1);
  CHECK(record.names[waits[0].name] == "comm/wait");
  // The stand-in's events are a millisecond apart, in the order of their calls.
  CHECK(waits[0].begin >= slices[0].end);
}

TEST_CASE("a link connects when it is made; a message is a launch of its own at each end") {
  LinkedEnds ends;
  CHECK(counts().launches == 2);
  for (int k = 0; k < 3; ++k) {
    const comm::Work sent = ends.send(k), received = ends.receive(k);
    sent.wait();
    received.wait();
  }
  CHECK(counts().launches == 8);
  CHECK(counts().launches_on_parents == 0);
  CHECK(counts().locks_held == 0);
  CHECK(ends.sender->options().spec == LinkedEnds::spec());
}

TEST_CASE("over NCCL, too, a message that is not the expected one is named on both ends") {
  LinkedEnds ends;
  const comm::Work sent = ends.send(7), received = ends.receive(8);
  for (const comm::Work& work : {received, sent}) {
    const std::string message = failure_of(work);
    CAPTURE(message);
    CHECK(contains(message,
                   "link 0 -> 1: rank 0 sends forward 7 of chunk 1 in step 12, fp32[4], and rank 1 "
                   "expects forward 8 of chunk 1 in step 12, fp32[4]"));
  }
}

TEST_CASE("a link whose other end does not come is ended after the time-out, and named") {
  LinkedEnds ends(/*timeout_s=*/0.2);
  counts().stall = true;
  std::string message;
  try {
    ends.receive(7);
  } catch (const CommError& error) {
    message = error.what();
  }
  CAPTURE(message);
  CHECK(contains(message, "link 0 -> 1: waits for forward 7 of chunk 1 in step 12"));
  counts().stall = false;
}

}  // namespace shale::test
