// Moves data between the emulated GPUs of several processes, in a shared segment for each
// communicator. A launch queues work on the emulated stream. Work that waits for other ranks lets
// other streams continue, like a kernel of NCCL. A thread runs queued work while the host
// continues, like a GPU.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <thread>

#include "shale/base/dtype.h"
#include "shale/kernels/simt/engine/stream.h"
#include "transfer.h"

// Tells Shale that NCCL's streams are streams of emulated GPUs.
extern "C" const int shale_nccl_of_emulated_gpus = 1;

namespace shale::test {
namespace {

using emulator::Stream;

constexpr int kMostRanks = 16, kMostSplits = 128;
constexpr size_t kHeaderBytes = size_t{1} << 20;
// Longest message; pages that are not used take no memory.
constexpr size_t kRegion = size_t{64} << 20;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "stand-in for NCCL: %s\n", what);
  std::abort();
}

// Messages from one rank to another rank, or in a collective to all ranks.
struct Channel {
  // Number of messages sent; number of times that a rank has read a message.
  std::atomic<uint64_t> posted, taken;
  size_t bytes;  // size of the last message
};

// Start of the segment. Its initial state is zeros, which a new file contains.
struct Header {
  std::atomic<int> joined;
  struct Split {
    std::atomic<int> called;
    int colors[kMostRanks], keys[kMostRanks];
  } splits[kMostSplits];
  // [sender][receiver]; receiver number `ranks` stands for all ranks.
  Channel channels[kMostRanks][kMostRanks + 1];
};
static_assert(sizeof(Header) <= kHeaderBytes);

class Segment {
 public:
  explicit Segment(const Transfer::Part& part) : bytes_(bytes_of(part.ranks)) {
    const int file = shm_open(part.name.c_str(), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, off_t(bytes_)) != 0) die("no shared segment");
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    if (data_ == MAP_FAILED) die("no memory for a shared segment");
    if (++header().joined == part.ranks) shm_unlink(part.name.c_str());
  }
  ~Segment() { munmap(data_, bytes_); }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  Header& header() { return *static_cast<Header*>(data_); }
  std::byte* region(int index) {
    return static_cast<std::byte*>(data_) + kHeaderBytes + size_t(index) * kRegion;
  }

 private:
  static size_t bytes_of(int ranks) {
    if (ranks > kMostRanks) die("more than 16 ranks");
    return kHeaderBytes + size_t(ranks) * size_t(ranks + 1) * kRegion;
  }
  size_t bytes_;
  void* data_;
};

// Runs the work of the streams that communicators use, until they are aborted or destroyed.
class Pump {
 public:
  void add(const void* owner, Stream* stream) {
    const std::lock_guard lock(mutex_);
    streams_[owner] = stream;
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  void remove(const void* owner) {
    std::thread ended;
    {
      const std::lock_guard lock(mutex_);
      streams_.erase(owner);
      if (streams_.empty()) std::swap(ended, thread_);
    }
    if (ended.joinable()) ended.join();
  }

 private:
  void run() {
    for (;;) {
      bool any = false;
      {
        const std::lock_guard lock(mutex_);
        if (streams_.empty()) return;
        for (const auto& [owner, stream] : streams_) any = stream->advance() || any;
      }
      if (any) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
  }
  std::mutex mutex_;
  std::map<const void*, Stream*> streams_;
  std::thread thread_;
};

Pump& pump() {
  static auto& pump = *new Pump;
  return pump;
}

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclFloat64: return 8;
    default: die("a data type that Shale does not use");
  }
}

// Combines element i of all `inputs`, in the order of ranks, to a sum or a maximum.
template <typename T, typename Acc>
void combine(const std::vector<const std::byte*>& inputs, ncclRedOp_t op, size_t count,
             void* result) {
  for (size_t i = 0; i < count; ++i) {
    const auto value = [&](const std::byte* input) {
      const T x = reinterpret_cast<const T*>(input)[i];
      if constexpr (sizeof(T) == 2) {
        return to_f32(x);
      } else {
        return x;
      }
    };
    Acc sum = value(inputs[0]);
    for (size_t r = 1; r < inputs.size(); ++r) {
      const Acc x = value(inputs[r]);
      sum = op == ncclMax ? std::max(sum, x) : static_cast<Acc>(sum + x);
    }
    static_cast<T*>(result)[i] = T(sum);
  }
}

void combine(const std::vector<const std::byte*>& inputs, const NcclCall& call) {
  switch (call.type) {
    case ncclFloat32: return combine<float, float>(inputs, call.op, call.count, call.out);
    case ncclFloat64: return combine<double, double>(inputs, call.op, call.count, call.out);
    case ncclBfloat16: return combine<bf16, float>(inputs, call.op, call.count, call.out);
    case ncclFloat16: return combine<f16, float>(inputs, call.op, call.count, call.out);
    case ncclInt32: return combine<int32_t, int32_t>(inputs, call.op, call.count, call.out);
    case ncclInt64: return combine<int64_t, int64_t>(inputs, call.op, call.count, call.out);
    case ncclUint8: return combine<uint8_t, uint8_t>(inputs, call.op, call.count, call.out);
    default: die("a sum of a data type that Shale does not use");
  }
}

class EmulatedTransfer final : public Transfer,
                               public std::enable_shared_from_this<EmulatedTransfer> {
 public:
  explicit EmulatedTransfer(const Part& part)
      : part_(part), segment_(part), read_(size_t(part.ranks)) {}

  bool joined() override { return header().joined == part_.ranks; }

  std::optional<Part> split(int number, int color, int key) override {
    if (number >= kMostSplits) die("too many splits of a communicator");
    Header::Split& split = header().splits[number];
    if (number >= called_) {
      called_ = number + 1;
      split.colors[part_.rank] = color;
      split.keys[part_.rank] = key;
      ++split.called;
    }
    if (split.called < part_.ranks) return std::nullopt;
    Part part{.name = part_.name + "_" + std::to_string(number) + "_" + std::to_string(color)};
    for (int r = 0; r < part_.ranks; ++r) {
      if (split.colors[r] != color) continue;
      ++part.ranks;
      if (std::pair(split.keys[r], r) < std::pair(key, part_.rank)) ++part.rank;
    }
    return part;
  }

  void launch(const std::vector<NcclCall>& calls, cudaStream_t handle) override {
    auto* const stream = reinterpret_cast<Stream*>(handle);
    if (!pumped_.exchange(true)) pump().add(this, stream);
    // Queued work owns a reference to this object, so that the segment exists until the work has
    // run.
    const auto queue = [&](auto work, auto ready) {
      const auto self = shared_from_this();
      stream->enqueue_when([self, calls, ready] { return self->aborted_ || ready(*self, calls); },
                           [self, calls, work] {
                             if (!self->aborted_) work(*self, calls);
                           });
    };
    using Self = EmulatedTransfer;
    using Calls = std::vector<NcclCall>;
    if (calls[0].kind < Transmission::kSend) {
      queue([](Self& self, const Calls& all) { self.post(all[0]); },
            [](Self& self, const Calls&) { return self.may_post(self.part_.ranks); });
      queue([](Self& self, const Calls& all) { self.collect(all[0]); },
            [](Self& self, const Calls&) { return self.all_posted(); });
      return;
    }
    // A send ends when its message has been received, like NCCL's sends of long messages.
    queue([](Self& self, const Calls& all) { self.send(all); },
          [](Self& self, const Calls& all) { return self.all_taken(all); });
    queue([](Self& self, const Calls& all) { self.receive(all); },
          [](Self& self, const Calls& all) { return self.all_arrived(all); });
    queue([](Self&, const Calls&) {},
          [](Self& self, const Calls& all) { return self.all_taken(all); });
  }

  void abort() override {
    aborted_ = true;
    if (pumped_.exchange(false)) pump().remove(this);
  }

 private:
  Header& header() { return segment_.header(); }
  Channel& channel(int from, int to) { return header().channels[from][to]; }
  std::byte* region(int from, int to) { return segment_.region(from * (part_.ranks + 1) + to); }

  void put(int to, const void* data, size_t bytes) {
    if (bytes > kRegion) die("a message of more than 64 MiB");
    Channel& out = channel(part_.rank, to);
    std::memcpy(region(part_.rank, to), data, bytes);
    out.bytes = bytes;
    ++out.posted;
  }

  // ---- Collectives: each rank posts its part, possibly empty, and reads those of all ----

  bool may_post(int to) {
    const Channel& own = channel(part_.rank, to);
    return own.taken == own.posted * uint64_t(part_.ranks);
  }
  bool all_posted() {
    for (int r = 0; r < part_.ranks; ++r) {
      if (channel(r, part_.ranks).posted <= read_[size_t(r)]) return false;
    }
    return true;
  }
  void post(const NcclCall& call) {
    const size_t bytes = call.count * size_of(call.type);
    const bool idle = call.kind == Transmission::kBroadcast && call.peer != part_.rank;
    const size_t parts = call.kind == Transmission::kReduceScatter ? size_t(part_.ranks) : 1;
    put(part_.ranks, call.in, idle ? 0 : parts * bytes);
  }
  void collect(const NcclCall& call) {
    const size_t bytes = call.count * size_of(call.type);
    const size_t offset =
        call.kind == Transmission::kReduceScatter ? size_t(part_.rank) * bytes : 0;
    std::vector<const std::byte*> inputs;
    for (int r = 0; r < part_.ranks; ++r) inputs.push_back(region(r, part_.ranks) + offset);
    auto* const out = static_cast<std::byte*>(call.out);
    switch (call.kind) {
      case Transmission::kAllGather:
        for (size_t r = 0; r < inputs.size(); ++r) std::memcpy(out + r * bytes, inputs[r], bytes);
        break;
      case Transmission::kBroadcast: std::memcpy(out, inputs[size_t(call.peer)], bytes); break;
      case Transmission::kReduce:
        if (call.peer == part_.rank) combine(inputs, call);
        break;
      default: combine(inputs, call);
    }
    for (int r = 0; r < part_.ranks; ++r) {
      ++read_[size_t(r)];
      ++channel(r, part_.ranks).taken;
    }
  }

  // ---- Sends and receives ----

  template <typename Body>
  bool all(const std::vector<NcclCall>& calls, Transmission kind, Body&& body) {
    return std::all_of(calls.begin(), calls.end(),
                       [&](const NcclCall& call) { return call.kind != kind || body(call); });
  }
  bool all_taken(const std::vector<NcclCall>& calls) {
    return all(calls, Transmission::kSend, [this](const NcclCall& call) {
      const Channel& out = channel(part_.rank, call.peer);
      return out.taken == out.posted;
    });
  }
  bool all_arrived(const std::vector<NcclCall>& calls) {
    return all(calls, Transmission::kReceive, [this](const NcclCall& call) {
      const Channel& in = channel(call.peer, part_.rank);
      return in.posted > in.taken;
    });
  }
  void send(const std::vector<NcclCall>& calls) {
    all(calls, Transmission::kSend, [this](const NcclCall& call) {
      put(call.peer, call.in, call.count * size_of(call.type));
      return true;
    });
  }
  void receive(const std::vector<NcclCall>& calls) {
    all(calls, Transmission::kReceive, [this](const NcclCall& call) {
      Channel& in = channel(call.peer, part_.rank);
      const size_t bytes = call.count * size_of(call.type);
      if (in.bytes != bytes) die("a message has another size than its receiver expects");
      std::memcpy(call.out, region(call.peer, part_.rank), bytes);
      ++in.taken;
      return true;
    });
  }

  Part part_;
  Segment segment_;
  std::vector<uint64_t> read_;  // number of messages read from each rank's channel to all ranks
  int called_ = 0;              // number of calls of split() on this rank
  std::atomic<bool> aborted_ = false, pumped_ = false;
};

}  // namespace

std::shared_ptr<Transfer> open_transfer(const Transfer::Part& part) {
  return std::make_shared<EmulatedTransfer>(part);
}

}  // namespace shale::test
