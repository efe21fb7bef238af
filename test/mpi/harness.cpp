#include "test/mpi/harness.h"

namespace shale::test {

std::vector<comm::GroupOptions> group_variants() {
  // Small staging areas, so that short buffers take several chunks.
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
  }
  return "unknown";
}

Buffer::Buffer(comm::ProcessGroup& group, Place place, int64_t bytes) : group_(group) {
  constexpr size_t kOffset = 200;  // a multiple of 8 and not of 64
  const auto size = static_cast<size_t>(bytes);
  const bool shared = place == Place::kGroup || place == Place::kOffset ||
                      (place == Place::kMixed && group.rank() % 2 == 0);
  if (!shared) {
    own_.resize(size + kOffset);
    data_ = own_.data();
    return;
  }
  shared_bytes_ = size + 2 * kOffset;
  shared_ = group.memory().allocate(shared_bytes_);
  data_ = static_cast<std::byte*>(shared_) + (place == Place::kOffset ? kOffset : 0);
}

Buffer::~Buffer() {
  if (shared_ != nullptr) group_.memory().free(shared_, shared_bytes_);
}

}  // namespace shale::test
