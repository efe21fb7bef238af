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

// Sources of image batches for a Prefetcher. Several threads may call them. Fields: "images" [rows,
// pixels, pixels, 3] f32; "labels" [rows] i32; for soft targets also "softening" [rows, classes]
// f32, to be subtracted from the one-hot targets.

// Images that could not be read. Counts and logs each of them once. Thread-safe.
class DamagedImages {
 public:
  explicit DamagedImages(int64_t limit) : limit_(limit) {}
  // Adds an image. `what` describes the problem. Throws DataError if there are more than the limit.
  void add(int64_t index, const std::string& what);
  int64_t count() const;

 private:
  int64_t limit_;
  mutable std::mutex mutex_;
  std::set<int64_t> found_;
};

// Options of one rank's training batches.
struct ImageTrainBatches {
  std::shared_ptr<const ImageDataset> images;
  Augmentation augmentation;
  MixOptions mix = {};
  int64_t classes = 0;
  uint64_t seed = 0;
  BatchLayout layout;
  int64_t rank = 0;
  int64_t first_step = 0;  // number of the first step; above 0 after a resume
  // Collects damaged images. Each is replaced by the next image that can be read.
  std::shared_ptr<DamagedImages> damaged;
};

// Returns an endless source. Each epoch has every image once, in random order. Throws ConfigError
// like BatchLayout::validate().
BatchSource image_train_batches(ImageTrainBatches spec);

// Options of one rank's validation batches.
struct ImageEvalBatches {
  std::shared_ptr<const ImageDataset> images;
  Augmentation augmentation;
  EvalRounds rounds;
  int64_t rank = 0;
  int64_t ranks = 1;
  std::shared_ptr<DamagedImages> damaged;
};

// Returns a source of rounds.rounds(ranks) batches. Rows from `count` on, and rows of damaged
// images, are 0 and have the label kernels::kIgnoreTarget.
BatchSource image_eval_batches(ImageEvalBatches spec);

}  // namespace shale
