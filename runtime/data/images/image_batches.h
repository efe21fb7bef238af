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

// Batch sources of images for a Prefetcher, callable from several threads. Fields: "images" [rows,
// pixels, pixels, 3] f32; "labels" [rows] i32; for soft targets also "softening" [rows, classes]
// f32, which must be subtracted from one-hot targets.

// Images that could not be read; each is counted and logged once. Thread-safe.
class DamagedImages {
 public:
  explicit DamagedImages(int64_t limit) : limit_(limit) {}
  // `what` describes the problem. Throws DataError beyond the limit.
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
  int64_t first_step = 0;  // first step after a resume
  // A damaged image is replaced by the next one that can be read.
  std::shared_ptr<DamagedImages> damaged;
};

// Endless source; each epoch has every image once, in random order. Throws ConfigError like
// BatchLayout::validate().
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

// Source of rounds.rounds(ranks) batches. Rows from `count` on, and those of damaged images, are 0
// and have the label kernels::kIgnoreTarget.
BatchSource image_eval_batches(ImageEvalBatches spec);

}  // namespace shale
