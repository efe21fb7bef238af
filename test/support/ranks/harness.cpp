#include "shale/test/support/ranks/harness.h"

#include "shale/comm/link/device_resources.h"
#include "shale/test/support/emulator.h"

namespace shale::test {

std::vector<comm::GroupOptions> group_variants() {
  // Uses small staging areas, so that short buffers take several chunks.
  std::vector<comm::GroupOptions> variants;
  variants.push_back({.name = "shared", .timeout_s = 60, .staging_bytes = 64 << 10});
  variants.push_back(
      {.name = "staged", .timeout_s = 60, .share_memory = false, .staging_bytes = 48 << 10});
  if (world().size() > 1) {
    variants.push_back(
        {.name = "nodes of 1", .timeout_s = 60, .ranks_per_node = 1, .staging_bytes = 12 << 10});
  }
  if (world().size() > 2) {
    variants.push_back(
        {.name = "nodes of 2", .timeout_s = 60, .ranks_per_node = 2, .staging_bytes = 12 << 10});
  }
  return variants;
}

std::string name_of(const comm::GroupOptions& options) {
  return options.name;
}

std::vector<Place> all_places() {
  return {Place::kGroup, Place::kAny, Place::kMixed, Place::kOffset};
}

std::string name_of(Place place) {
  switch (place) {
    case Place::kGroup: return "group";
    case Place::kAny: return "any";
    case Place::kMixed: return "mixed";
    case Place::kOffset: return "offset";
    case Place::kDevice: return "device";
  }
  return "unknown";
}

namespace {

void run_on(DeviceBackend& device, const comm::GroupOptions& options,
            const std::function<void(const Setup&)>& test) {
  const comm::DeviceStream stream(device);
  const auto group = world().group(options, device);
  test({*group, options, Place::kDevice, &device, stream.get()});
}

// Makes the backend of this rank's own GPU. Without an own GPU it uses the first one; without any
// GPU it returns null.
std::unique_ptr<DeviceBackend> make_gpu() {
  for (const int index : {world().local_rank(), 0}) {
    try {
      return make_backend({.type = DeviceType::kCuda, .index = index});
    } catch (const UnavailableError&) {
      // This rank has no GPU of its own, or the machine has no GPU or driver.
    }
  }
  return nullptr;
}

}  // namespace

void for_all_setups(const std::function<void(const Setup&)>& test) {
  for (const comm::GroupOptions& options : group_variants()) {
    const auto group = world().group(options);
    for (const Place place : all_places()) test({*group, options, place});
  }
  for_all_staged(test);
  // With more than two ranks, NCCL adds in another order than Shale.
  if (world().size() <= 2 && make_gpu() != nullptr) {
    for_nccl({.name = "nccl", .timeout_s = 60}, test);
  }
}

void for_all_staged(const std::function<void(const Setup&)>& test) {
  using emulator::Order;
  // Uses slots of 8 KiB, so that short buffers take many slots.
  const comm::GroupOptions options = {.name = "device",
                                      .timeout_s = 60,
                                      .staging_bytes = 1 << 10,
                                      .transport = comm::Transport::kMpi};
  for (const auto& gpu : emulated_gpus({{.order = Order::kFifo},
                                        {.order = Order::kLifo},
                                        {.order = Order::kRandom, .seed = 1},
                                        {.order = Order::kRandom, .seed = 2}})) {
    run_on(*gpu, options, test);
  }
  if (const auto gpu = make_gpu()) run_on(*gpu, options, test);
}

bool for_nccl(const comm::GroupOptions& options, const std::function<void(const Setup&)>& test) {
  comm::GroupOptions with_nccl = options;
  with_nccl.transport = comm::Transport::kNccl;
  try {
    if (const auto gpu = make_gpu()) {
      run_on(*gpu, with_nccl, test);
      return true;
    }
    // Without a GPU, tests a stand-in for NCCL (test/nccl_stand_in), if the library search path has
    // it.
    using emulator::Order;
    for (const auto& gpu : emulated_gpus({{.order = Order::kFifo},
                                          {.order = Order::kRandom, .queues = 3},
                                          {.order = Order::kLifo, .queues = 2}})) {
      run_on(*gpu, with_nccl, test);
    }
  } catch (const UnavailableError& error) {
    WARN("skipped: " << error.what());
    return false;
  }
  return true;
}

Buffer::Buffer(comm::ProcessGroup& group, Place place, int64_t bytes)
    : Buffer(Setup{group, group.options(), place}, bytes) {}

Buffer::Buffer(const Setup& setup, int64_t bytes) : device_(setup.device), stream_(setup.stream) {
  constexpr size_t kOffset = 200;  // a multiple of 8 bytes, but not of a cache line
  const Place place = setup.place;
  const auto size = static_cast<size_t>(bytes);
  if (place == Place::kAny || (place == Place::kMixed && setup.group.rank() % 2 != 0)) {
    own_.resize(size + kOffset);
    data_ = own_.data();
    return;
  }
  bytes_ = size + 2 * kOffset;
  provider_ = device_ != nullptr ? &device_->host_memory() : &setup.group.memory();
  memory_ = provider_->allocate(bytes_);
  data_ = static_cast<std::byte*>(memory_) + (place == Place::kOffset ? kOffset : 0);
  if (device_ != nullptr) device_data_ = setup.group.memory().allocate(bytes_);
}

Buffer::~Buffer() {
  if (device_ != nullptr) device_->memory().free(device_data_, bytes_);
  if (provider_ != nullptr) provider_->free(memory_, bytes_);
}

void Buffer::give() const {
  if (device_ != nullptr) device_->copy(device_data_, data_, bytes_, stream_);
}

void Buffer::take() const {
  if (device_ == nullptr) return;
  device_->copy(data_, device_data_, bytes_, stream_);
  device_->synchronize(stream_);
}

}  // namespace shale::test
