#include "shale/comm/groups/group_simulated.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/sums/slices.h"
#include "shale/comm/work_state.h"

namespace shale::comm {
namespace {

// Number of rounds of an algorithm that reaches twice as many ranks in each round.
int64_t rounds(int ranks) {
  return std::bit_width(static_cast<uint32_t>(ranks - 1));
}

int64_t messages_of(const CollectiveCall& call, int rank, int ranks) {
  switch (call.op) {
    case CollectiveOp::kBarrier:
    case CollectiveOp::kReduceScatterSum:
    case CollectiveOp::kAllGather: return rounds(ranks);
    case CollectiveOp::kAllReduceSum:
    case CollectiveOp::kAllReduceMax: return 2 * rounds(ranks);
    case CollectiveOp::kBroadcast: return rank == call.root ? rounds(ranks) : 0;
    case CollectiveOp::kGather:
    case CollectiveOp::kReduceSum: return rank == call.root ? 0 : 1;
    case CollectiveOp::kAllToAll: return ranks - 1;
    case CollectiveOp::kAllToAllV: break;
  }
  int64_t messages = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    messages += peer != rank && call.in_counts[static_cast<size_t>(peer)] > 0;
  }
  return messages;
}

double received_bytes_of(const CollectiveCall& call, int rank, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  const auto whole = static_cast<double>(call.larger_bytes());
  if (call.op == CollectiveOp::kBroadcast) return rank == call.root ? 0 : whole;
  if (is_to_root(call.op)) return rank == call.root ? others * whole : 0;
  if (call.op == CollectiveOp::kAllToAllV) return received_bytes(call, rank);
  if (is_all_to_all(call.op)) return others * static_cast<double>(call.out.bytes());
  return call.op == CollectiveOp::kBarrier ? 0 : others * whole;
}

template <typename T>
void multiply(const View& y, int64_t factor) {
  auto* values = y.as<T>();
  for (int64_t i = 0; i < y.numel(); ++i) {
    if constexpr (std::is_class_v<T>) {  // T is bf16 or f16
      values[i] = T(to_f32(values[i]) * static_cast<float>(factor));
    } else {
      values[i] *= static_cast<T>(factor);
    }
  }
}

void add_equal(const View& y, int64_t ranks) {
  switch (y.dtype) {
    case DType::kF32: return multiply<float>(y, ranks);
    case DType::kBF16: return multiply<bf16>(y, ranks);
    case DType::kF16: return multiply<f16>(y, ranks);
    case DType::kF64: return multiply<double>(y, ranks);
    case DType::kI32: return multiply<int32_t>(y, ranks);
    case DType::kI64: return multiply<int64_t>(y, ranks);
    default: throw InternalError(cat("simulated: cannot add elements of ", dtype_name(y.dtype)));
  }
}

class PeerMemory final : public MemoryProvider {
 public:
  explicit PeerMemory(MemoryProvider& memory) : memory_(memory) {}
  void* allocate(size_t bytes) override { return memory_.allocate(bytes); }
  void free(void* memory, size_t bytes) noexcept override { memory_.free(memory, bytes); }

 private:
  MemoryProvider& memory_;
};

// A queued collective that is done after wait(). Its values were moved when it was queued.
class LateWork final : public WorkState {
 public:
  LateWork(SimulatedClock* clock, double end, Lane lane) : clock_(clock), end_(end), lane_(lane) {}
  bool done() const override { return done_; }
  void wait() override {
    if (!std::exchange(done_, true) && clock_ != nullptr) clock_->wait_until(end_, lane_);
  }
  void give_up() override { done_ = true; }

 private:
  SimulatedClock* clock_;
  double end_;
  Lane lane_;
  bool done_ = false;
};

class SimulatedLink final : public PipeLink {
 public:
  SimulatedLink(LinkOptions options, SimulatedClock* clock)
      : PipeLink(std::move(options)), clock_(clock) {}

 protected:
  Work pass(const View& message, const Message&, void*) override {
    const LinkOptions& link = this->options();
    if (link.sends && clock_ != nullptr) {
      clock_->send(message, link.sender_world, link.receiver_world);
    }
    return Work();
  }

 private:
  SimulatedClock* clock_;
};

void copy(const View& from, const View& to) {
  if (from.data == to.data || from.bytes() == 0) return;
  std::memmove(to.data, from.data, static_cast<size_t>(from.bytes()));
}

}  // namespace

SimulatedCounts& SimulatedCounts::operator+=(const SimulatedCounts& other) {
  calls += other.calls;
  blocking += other.blocking;
  messages += other.messages;
  sent_bytes += other.sent_bytes;
  received_bytes += other.received_bytes;
  return *this;
}

SimulatedGroup::SimulatedGroup(int rank, int size, DeviceBackend& device,
                               const SimulatedOptions& options)
    : ProcessGroup(rank, size, options.group),
      device_(device),
      has_values_(options.has_values),
      late_(options.late),
      clock_(options.clock),
      memory_(std::make_shared<PeerMemory>(
          device.device().type == DeviceType::kCpu ? device.host_memory() : device.memory())) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw ConfigError(
        cat("simulated group: rank ", rank, " of ", size, ", expected a rank from 0 to size - 1"));
  }
  std::vector<int> members(static_cast<size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  members_ = std::make_shared<const std::vector<int>>(std::move(members));
}

struct SimulatedGroup::Host {
  explicit Host(const SimulatedGroup& device)
      : group(device.rank(), device.size(), *cpu,
              {.group = device.options(), .late = device.late_, .clock = device.clock_}) {
    group.members_ = device.members_;
  }
  std::unique_ptr<DeviceBackend> cpu = make_cpu_backend();
  SimulatedGroup group;
};

ProcessGroup& SimulatedGroup::host() {
  if (device_.device().type == DeviceType::kCpu) return *this;
  if (host_ == nullptr) host_ = std::make_shared<Host>(*this);
  return host_->group;
}

SimulatedCounts SimulatedGroup::total() const {
  SimulatedCounts total;
  for (const auto& [tag, counts] : counts_) total += counts;
  return total;
}

Work SimulatedGroup::submit(const CollectiveCall& call, bool async) {
  counts_[call.tag] += {.calls = 1,
                        .blocking = async ? 0 : 1,
                        .messages = messages_of(call, rank(), size()),
                        .sent_bytes = sent_bytes(call, rank(), size()),
                        .received_bytes = received_bytes_of(call, rank(), size())};
  const bool is_in_shorter = call.in.bytes() < call.out.bytes();
  const View &shorter = is_in_shorter ? call.in : call.out,
             &longer = is_in_shorter ? call.out : call.in;
  if (!has_values_ || has_values_(shorter, longer)) move_values(call);
  return work_of(call, async);
}

Work SimulatedGroup::work_of(const CollectiveCall& call, bool async) {
  if (size() == 1 || (!late_ && clock_ == nullptr)) return Work();
  const double end = clock_ == nullptr ? 0 : clock_->queue(call, members_, options().lane);
  if (async) return Work(std::make_shared<LateWork>(clock_, end, options().lane));
  if (clock_ != nullptr) clock_->wait_until(end, options().lane);
  return Work();
}

void SimulatedGroup::move_values(const CollectiveCall& call) {
  switch (call.op) {
    case CollectiveOp::kBarrier:
    case CollectiveOp::kAllReduceMax: break;
    case CollectiveOp::kBroadcast:
      if (rank() != call.root) receive_text(call);
      break;
    case CollectiveOp::kReduceSum:
      if (rank() == call.root) add_equal(call.out, size());
      break;
    case CollectiveOp::kAllReduceSum: add_equal(call.out, size()); break;
    case CollectiveOp::kAllToAll: {
      const int64_t count = call.out.numel() / size();
      for (int peer = 0; peer < size(); ++peer) {
        copy(call.in.flat(rank() * count, count), call.out.flat(peer * count, count));
      }
      break;
    }
    case CollectiveOp::kAllToAllV:  // the lengths of other ranks' slices are unknown
      std::memset(call.out.data, 0, static_cast<size_t>(call.out.bytes()));
      break;
    case CollectiveOp::kReduceScatterSum: {
      const int64_t count = call.out.numel();
      copy(call.in.flat(rank() * count, count), call.out);
      add_equal(call.out, size());
      break;
    }
    case CollectiveOp::kGather:
      if (rank() != call.root) break;
      [[fallthrough]];
    case CollectiveOp::kAllGather: {
      const int64_t count = call.in.numel();
      for (int peer = 0; peer < size(); ++peer) copy(call.in, call.out.flat(peer * count, count));
      break;
    }
  }
}

// Receives the text of a broadcast_bytes(), which broadcasts first the length, then the bytes.
void SimulatedGroup::receive_text(const CollectiveCall& call) {
  const auto found = broadcasts_.find(call.tag);
  if (found == broadcasts_.end()) return;
  const std::string& text = found->second;
  if (call.out.dtype == DType::kI64) {
    *call.out.as<int64_t>() = static_cast<int64_t>(text.size());
  } else {
    std::memcpy(call.out.data, text.data(), static_cast<size_t>(call.out.bytes()));
  }
}

SimulatedOptions SimulatedGroup::with(const GroupOptions& group) const {
  return {.group = group, .has_values = has_values_, .late = late_, .clock = clock_};
}

std::unique_ptr<ProcessGroup> SimulatedGroup::make_split(int color, int key,
                                                         const GroupOptions& options) {
  if (color != 0 || key != rank()) {
    throw UnavailableError(cat("simulated group: ", options.name,
                               " cannot be split with the color of one rank, because the other "
                               "ranks are simulated; give the colors of all ranks"));
  }
  return make_known_split(std::vector<int>(static_cast<size_t>(size())), options);
}

std::unique_ptr<ProcessGroup> SimulatedGroup::make_known_split(std::span<const int> colors,
                                                               const GroupOptions& options) {
  const int mine = colors[static_cast<size_t>(rank())];
  const auto before = colors.first(static_cast<size_t>(rank()));
  const auto rank = static_cast<int>(std::count(before.begin(), before.end(), mine));
  const auto size = static_cast<int>(std::count(colors.begin(), colors.end(), mine));
  auto group = std::make_unique<SimulatedGroup>(rank, size, device_, with(options));
  group->memory_ = memory_;
  std::vector<int> members;
  members.reserve(static_cast<size_t>(size));
  for (size_t i = 0; i < colors.size(); ++i) {
    if (colors[i] == mine) members.push_back((*members_)[i]);
  }
  group->members_ = std::make_shared<const std::vector<int>>(std::move(members));
  return group;
}

std::vector<std::unique_ptr<PipeLink>> SimulatedGroup::open_links(std::span<const LinkSpec> specs) {
  std::vector<std::unique_ptr<PipeLink>> links(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const LinkSpec& spec = specs[i];
    if (spec.sender != rank() && spec.receiver != rank()) continue;
    const auto world = [this](int member) { return (*members_)[static_cast<size_t>(member)]; };
    links[i] = std::make_unique<SimulatedLink>(LinkOptions{.spec = spec,
                                                           .sends = spec.sender == rank(),
                                                           .sender_world = world(spec.sender),
                                                           .receiver_world = world(spec.receiver),
                                                           .group_name = options().name,
                                                           .timeout_s = options().timeout_s},
                                               clock_);
  }
  return links;
}

}  // namespace shale::comm
