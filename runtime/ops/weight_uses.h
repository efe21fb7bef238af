#pragma once

#include <cstdint>

namespace shale {

// Counts the uses of each version of a weight, to decide whether to keep a converted copy that they
// share. A copy is worthwhile if a version is used at least twice. So the first version that is
// used twice starts it: from then on the first use of each version makes the copy. Training that
// steps after each use keeps no copy.
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
