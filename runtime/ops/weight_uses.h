#pragma once

#include <cstdint>

namespace shale {

// How often each version of a weight is used in one way, for a copy in another form that the uses
// may share. It is worth its memory from the second use of one version on, so that who steps after
// each use keeps none; from then on the first use of a version makes it.
class WeightUses {
 public:
  // Counts a use of this version. Whether a copy is to be kept.
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
