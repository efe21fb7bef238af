#pragma once

#include <cstdint>

namespace shale {

// Counts the uses of each version of a weight, to decide whether to keep a copy in another form for
// them to share. A copy is worthwhile if one version is used at least twice; training that steps
// after each use keeps none. Once a second use was seen, each version's first use makes the copy.
class WeightUses {
 public:
  // Counts a use of this version. Returns true if a copy should be kept.
  bool share(uint64_t version) {
    if (version != version_) count_ = 0;
    version_ = version;
    shared_ |= ++count_ > 1;
    return shared_;
  }
  bool are_shared() const { return shared_; }

 private:
  uint64_t version_ = 0;
  int64_t count_ = 0;
  bool shared_ = false;
};

}  // namespace shale
