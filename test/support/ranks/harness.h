#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/dtype.h"
#include "shale/base/view.h"
#include "shale/comm/world.h"
#include "shale/runtime/tensor/device_backend.h"
#include "shale/test/support/catch.h"

namespace shale::test {

comm::World& world();  // of this test program

// Runs what a failure test asks for instead of the test cases: --fail=MODE.
int run_failure_mode(std::string_view mode, comm::World& world);
// Fails as these do, in sharded training: where is "forward", "backward", "step" or "memory".
int fail_while_training(std::string_view where, comm::World& world);

// The ways in which a group may have to work; the last one pretends that nodes are small.
std::vector<comm::GroupOptions> group_variants();
std::string name_of(const comm::GroupOptions& options);

// Where the buffers of a collective lie.
enum class Place {
  kGroup,   // peers reach it
  kAny,     // they do not
  kMixed,   // on every other rank
  kOffset,  // inside a segment, and not at a cache line's start
  kDevice,  // in memory that the host must not touch
};
std::vector<Place> all_places();  // on the host
std::string name_of(Place place);

// One way to run collectives: a group, where the buffers lie, and what uses them there.
struct Setup {
  comm::ProcessGroup& group;
  const comm::GroupOptions& options;
  Place place = Place::kAny;
  DeviceBackend* device = nullptr;  // null: the host
  void* stream = nullptr;           // of the device
};

// Calls test(setup) for all variants and places on the host, and what follows.
void for_all_setups(const std::function<void(const Setup&)>& test);
// For groups over an emulated device whose streams run late and in several orders, and over a GPU
// where there is one.
void for_all_staged(const std::function<void(const Setup&)>& test);
// Over NCCL, where it can be used. Returns false, after a warning, where it cannot.
bool for_nccl(const comm::GroupOptions& options, const std::function<void(const Setup&)>& test);

class Buffer {
 public:
  Buffer(comm::ProcessGroup& group, Place place, int64_t bytes);
  Buffer(const Setup& setup, int64_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // The values, on the host: the buffer itself, or on a device a pinned copy.
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  // What collectives are given: `count` elements.
  template <typename T>
  View view(int64_t count) const {
    return make_view(static_cast<T*>(device_data_ != nullptr ? device_data_ : data_), {count});
  }
  // Queues the copy of the values to the device; they must not change before it has run.
  void give() const;
  // Copies the device's values back and waits for them.
  void take() const;

 private:
  MemoryProvider* provider_ = nullptr;  // of memory_
  std::vector<std::byte> own_;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
  void* data_ = nullptr;
  DeviceBackend* device_ = nullptr;
  void* stream_ = nullptr;
  void* device_data_ = nullptr;
};

// Values whose sum depends on the order of additions, different for every rank and element.
template <typename T>
T order_value(int rank, int64_t i) {
  uint64_t x = (static_cast<uint64_t>(rank) << 40 | static_cast<uint64_t>(i)) * 0x9E3779B97F4A7C15u;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 32;
  const auto mantissa = static_cast<int64_t>(x & 0xffff) - 0x8000;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(mantissa * 65537);
  } else {
    const double scaled = static_cast<double>(mantissa) / (1 << (x >> 60));
    if constexpr (sizeof(T) == 2) {
      return T(static_cast<float>(scaled / 64));
    } else {
      return static_cast<T>(scaled);
    }
  }
}

// ---- The sum as it is documented: serially, by recursion ----

template <typename Acc>
Acc tree(const std::vector<Acc>& values) {
  if (values.size() == 1) return values[0];
  size_t left = 1;
  while (left * 2 < values.size()) left *= 2;
  const auto middle = values.begin() + static_cast<int64_t>(left);
  return static_cast<Acc>(tree(std::vector<Acc>(values.begin(), middle)) +
                          tree(std::vector<Acc>(middle, values.end())));
}

// Element i over all ranks; nodes of `ranks_per_node` ranks each (0: one node).
template <typename T>
T expected_sum(int ranks, int ranks_per_node, int64_t i) {
  using Acc = std::conditional_t<sizeof(T) == 2, float, T>;
  const int per_node = ranks_per_node == 0 ? ranks : ranks_per_node;
  std::vector<Acc> nodes;
  for (int first = 0; first < ranks; first += per_node) {
    std::vector<Acc> values;
    for (int r = first; r < std::min(ranks, first + per_node); ++r) {
      values.push_back(static_cast<Acc>(order_value<T>(r, i)));
    }
    nodes.push_back(tree(values));
  }
  return static_cast<T>(tree(nodes));
}

// The first element whose bits differ, or -1.
template <typename T, typename Expected>
int64_t first_difference(const T* got, int64_t count, Expected&& expected) {
  for (int64_t i = 0; i < count; ++i) {
    const T want = expected(i);
    if (std::memcmp(got + i, &want, sizeof(T)) != 0) return i;
  }
  return -1;
}

}  // namespace shale::test
