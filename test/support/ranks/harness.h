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

comm::World& world();  // the World of this test program

// Runs a failure mode, the argument of --fail=MODE, instead of the test cases.
int run_failure_mode(std::string_view mode, comm::World& world);
// Fails during sharded training: `where` is "forward", "backward", "step" or "memory".
int fail_while_training(std::string_view where, comm::World& world);

// Options of groups that must all work; the last ones pretend that nodes have one or two ranks.
std::vector<comm::GroupOptions> group_variants();
std::string name_of(const comm::GroupOptions& options);

// Kind of memory that the buffers of a collective are in.
enum class Place {
  kGroup,   // memory that peers can access directly
  kAny,     // memory that peers cannot access
  kMixed,   // memory that peers can access on every other rank only
  kOffset,  // memory that peers can access, not at the start of a cache line
  kDevice,  // device memory, which the host must not access
};
std::vector<Place> all_places();  // all places in host memory
std::string name_of(Place place);

// A group, the memory that its buffers are in, and the device that uses them.
struct Setup {
  comm::ProcessGroup& group;
  const comm::GroupOptions& options;
  Place place = Place::kAny;
  DeviceBackend* device = nullptr;  // null: the buffers are in host memory
  void* stream = nullptr;           // stream of the device
};

// Calls test(setup) for all variants and places in host memory, then for devices and for NCCL.
void for_all_setups(const std::function<void(const Setup&)>& test);
// Calls test(setup) for groups in device memory: on an emulated device whose streams run late and
// in several orders, and on a GPU if there is one.
void for_all_staged(const std::function<void(const Setup&)>& test);
// Calls test(setup) over NCCL. If NCCL cannot be used, prints a warning and returns false.
bool for_nccl(const comm::GroupOptions& options, const std::function<void(const Setup&)>& test);

class Buffer {
 public:
  Buffer(comm::ProcessGroup& group, Place place, int64_t bytes);
  Buffer(const Setup& setup, int64_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // Returns the values in host memory: the buffer itself, or a pinned copy if the buffer is in
  // device memory.
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  // View of `count` elements of the buffer, to pass to collectives.
  template <typename T>
  View view(int64_t count) const {
    return make_view(static_cast<T*>(device_data_ != nullptr ? device_data_ : data_), {count});
  }
  // Queues a copy of the values to the device; the values must not change before the copy has run.
  void give() const;
  // Copies the values back from the device and waits for the copy.
  void take() const;

 private:
  MemoryProvider* provider_ = nullptr;  // provider that memory_ is returned to
  std::vector<std::byte> own_;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
  void* data_ = nullptr;
  DeviceBackend* device_ = nullptr;
  void* stream_ = nullptr;
  void* device_data_ = nullptr;
};

// Returns values that differ by rank and element, and whose sum depends on the order of additions.
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

// ---- The sum in its documented order, computed serially by recursion ----

template <typename Acc>
Acc tree(const std::vector<Acc>& values) {
  if (values.size() == 1) return values[0];
  size_t left = 1;
  while (left * 2 < values.size()) left *= 2;
  const auto middle = values.begin() + static_cast<int64_t>(left);
  return static_cast<Acc>(tree(std::vector<Acc>(values.begin(), middle)) +
                          tree(std::vector<Acc>(middle, values.end())));
}

// Returns the expected sum of element i over all ranks, in the order in which nodes of
// `ranks_per_node` ranks add. 0: all ranks are on one node.
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

// Index of the first element whose bits differ; -1: none.
template <typename T, typename Expected>
int64_t first_difference(const T* got, int64_t count, Expected&& expected) {
  for (int64_t i = 0; i < count; ++i) {
    const T want = expected(i);
    if (std::memcmp(got + i, &want, sizeof(T)) != 0) return i;
  }
  return -1;
}

}  // namespace shale::test
