#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "shale/runtime/data/batch.h"
#include "shale/runtime/data/images/augment.h"
#include "shale/runtime/data/images/image_dataset.h"
#include "shale/runtime/data/images/mix.h"
#include "shale/runtime/data/sampler.h"

namespace shale {

// Images as sources of batches for a Prefetcher, which may ask several threads for them: "images"
// [rows, pixels, pixels, 3] f32, and "labels" [rows] i32; where targets are soft also "softening"
// [rows, classes] f32, which is to be subtracted from targets that are 1 for the label.

// Images that could not be read, each counted once and named in the log. Thread-safe.
class DamagedImages {
 public:
  explicit DamagedImages(int64_t limit) : limit_(limit) {}
  // `what` says what is wrong. Throws DataError beyond the limit.
  void add(int64_t index, const std::string& what);
  int64_t count() const;

 private:
  int64_t limit_;
  mutable std::mutex mutex_;
  std::set<int64_t> found_;
};

// The training batches of one rank.
struct ImageTrainBatches {
  std::shared_ptr<const ImageDataset> images;
  Augmentation augmentation;
  MixOptions mix = {};
  int64_t classes = 0;
  uint64_t seed = 0;
  BatchLayout layout;
  int64_t rank = 0;
  int64_t first_step = 0;  // where to go on after a resume
  // In the place of a damaged image stands the next one that is not.
  std::shared_ptr<DamagedImages> damaged;
};

// Endless, in every epoch each image once, in random order. Throws ConfigError as
// BatchLayout::validate().
BatchSource image_train_batches(ImageTrainBatches spec);

// The validation batches of one rank.
struct ImageEvalBatches {
  std::shared_ptr<const ImageDataset> images;
  Augmentation augmentation;
  EvalRounds rounds;
  int64_t rank = 0;
  int64_t ranks = 1;
  std::shared_ptr<DamagedImages> damaged;
};

// rounds.rounds(ranks) batches, then the end. Rows from `count` on, and those of damaged images,
// are 0 and have a label that the loss ignores (kernels::kIgnoreTarget).
BatchSource image_eval_batches(ImageEvalBatches spec);

}  // namespace shale
