// Tests how a device group uses the links for copies, with a simulated device whose copies take a
// known time.
#include "shale/comm/groups/group_staged.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale::comm {
namespace {

constexpr double kBytesPerSecond = 1e9;  // speed of copies, in each direction

// Host time, and the total duration of copies in each direction.
struct Clock {
  double now = 0;
  double down = 0, up = 0;
};

struct TimedStream {
  double end = 0;  // end of all queued copies
};

// A device in host memory. A copy happens at once, but advances its stream's simulated clock.
class TimedDevice final : public DeviceBackend {
 public:
  explicit TimedDevice(Clock& clock, MemoryProvider& memory) : clock_(clock), memory_(memory) {}

  // Treats this buffer as device memory, so a copy from it counts as a copy to the host.
  void own(const View& buffer) { own_ = buffer; }

  Device device() const override { return {.type = DeviceType::kEmu, .arch = 86}; }
  MemoryProvider& memory() override { return memory_; }
  MemoryProvider& host_memory() override { return memory_; }
  void pin(void*, size_t) override {}
  void unpin(void*) noexcept override {}
  void* create_stream() override { return new TimedStream; }
  void destroy_stream(void* stream) noexcept override { delete &of(stream); }
  void synchronize(void* stream) override { clock_.now = std::max(clock_.now, of(stream).end); }
  void* record_event(void* stream) override {
    return new double(std::max(clock_.now, of(stream).end));
  }
  void wait_event(void* stream, void* event) override {
    of(stream).end = std::max(of(stream).end, *static_cast<double*>(event));
  }
  bool event_done(void* event) override { return *static_cast<double*>(event) <= clock_.now; }
  void synchronize_event(void* event) override {
    clock_.now = std::max(clock_.now, *static_cast<double*>(event));
  }
  void destroy_event(void* event) noexcept override { delete static_cast<double*>(event); }
  void copy(void* to, const void* from, size_t bytes, void* stream) override {
    std::memcpy(to, from, bytes);
    const double seconds = static_cast<double>(bytes) / kBytesPerSecond;
    of(stream).end = std::max(of(stream).end, clock_.now) + seconds;
    (from_device(from) ? clock_.down : clock_.up) += seconds;
  }

 private:
  TimedStream& of(void* stream) {
    return stream == nullptr ? default_ : *static_cast<TimedStream*>(stream);
  }
  bool from_device(const void* from) const {
    const auto* const begin = static_cast<const std::byte*>(own_.data);
    return from >= begin && from < begin + own_.bytes();
  }
  Clock& clock_;
  MemoryProvider& memory_;
  View own_;
  TimedStream default_;
};

// One rank of two. The other rank is simulated: it contributes the same values after a delay.
class TimedHost final : public HostGroup {
 public:
  TimedHost(std::shared_ptr<WorldContext> context, const GroupOptions& options, Clock& clock,
            double share)
      : HostGroup(0, 2, options), context_(std::move(context)), clock_(clock), share_(share) {}

  std::string_view backend() const override { return "timed"; }
  MemoryProvider& memory() override { return context_->memory; }
  void execute(const CollectiveCall& call, bool) override {
    auto* const values = static_cast<float*>(call.out.data);
    for (int64_t i = 0; i < call.out.numel(); ++i) values[i] *= 2;
    clock_.now += share_ * static_cast<double>(call.out.bytes()) / kBytesPerSecond;
  }
  std::unique_ptr<GroupProgress> make_progress() override { throw InternalError("not asked for"); }
  std::unique_ptr<HostGroup> split_host(int, int, const GroupOptions&) override {
    throw InternalError("not asked for");
  }
  std::vector<LinkEnd> open_mailboxes(std::span<const LinkSpec>) override { return {}; }

 protected:
  Work submit(const CollectiveCall&, bool) override { throw InternalError("not asked for"); }

 private:
  std::shared_ptr<WorldContext> context_;
  Clock& clock_;
  double share_;  // duration of a reduction / duration of a copy
};

}  // namespace

TEST_CASE("staging keeps both directions of the link busy", "[staged]") {
  // `share` is the duration of a reduction, divided by that of a copy.
  for (const double share : {0.0, 0.5, 0.9, 1.5}) {
    CAPTURE(share);
    const auto context = std::make_shared<WorldContext>();
    Clock clock;
    TimedDevice device(clock, context->memory);
    const GroupOptions options{.staging_bytes = 1 << 10};  // gives chunks of 8 KiB
    StagedGroup group(context, std::make_unique<TimedHost>(context, options, clock, share), device);
    constexpr int64_t kChunks = 64, kCount = kChunks * (8 << 10) / 4;
    std::vector<float> values(kCount, 3);
    const View view = make_view(values.data(), {kCount});
    device.own(view);
    void* const stream = device.create_stream();
    group.all_reduce_sum(view, {.stream = stream});
    device.synchronize(stream);
    CHECK(std::count(values.begin(), values.end(), 6.0f) == kCount);

    const double copy = kCount * 4 / kBytesPerSecond;
    CHECK(clock.down == Approx(copy));
    CHECK(clock.up == Approx(copy));
    // The slowest of the three stages is always busy, except for the first and the last chunk.
    const double ends = (2 + share) * copy / kChunks;
    CHECK(clock.now <= std::max(1.0, share) * copy + ends + 1e-9);
    device.destroy_stream(stream);
  }
}

}  // namespace shale::comm
