#include "shale/runtime/data/images/image_batches.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/kernels/loss.h"

namespace shale {
namespace {

// The two fields of a batch, and an image of it.
struct ImageBatch {
  ImageBatch(Batch& batch, int64_t rows, int64_t pixels) : row_values(pixels * pixels * 3) {
    // Both before either is looked at: adding a field moves the others.
    batch.set("images", DType::kF32, {rows, pixels, pixels, 3});
    labels = batch.set("labels", DType::kI32, {rows}).values<int32_t>();
    images = batch.set("images", DType::kF32, {rows, pixels, pixels, 3}).values<float>();
  }
  std::span<float> image(int64_t row) const {
    return images.subspan(static_cast<size_t>(row * row_values), static_cast<size_t>(row_values));
  }

  int64_t row_values;
  std::span<float> images;
  std::span<int32_t> labels;
};

// Whether the image is there to be read.
bool read_image(const ImageDataset& images, int64_t index, Image& to, DamagedImages& damaged) {
  try {
    images.read(index, to);
    return true;
  } catch (const DataError& error) {
    damaged.add(index, error.what());
    return false;
  }
}

// Reads image `index`, or the next one that can be; returns its number.
int64_t read_next(const ImageDataset& images, int64_t index, Image& to, DamagedImages& damaged) {
  for (int64_t tried = 0; tried < images.size(); ++tried) {
    if (read_image(images, index, to, damaged)) return index;
    index = (index + 1) % images.size();
  }
  throw DataError("images: none can be read");
}

}  // namespace

void DamagedImages::add(int64_t index, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (!found_.insert(index).second) return;
  if (std::ssize(found_) > limit_) {
    throw DataError(cat(what, "; ", found_.size(), found_.size() == 1 ? " image is" : " images are",
                        " damaged, want at most ", limit_, " (--max-damaged)"));
  }
  log_warning(what, "; left out");
}

int64_t DamagedImages::count() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(found_);
}

BatchSource image_train_batches(ImageTrainBatches spec) {
  spec.layout.validate();
  if (spec.rank < 0 || spec.rank >= spec.layout.ranks) {
    throw InternalError(cat("batches: rank ", spec.rank, ", want [0, ", spec.layout.ranks, ")"));
  }
  return [spec = std::move(spec)](int64_t i, Batch& batch) {
    const BatchLayout::Place place = spec.layout.place_of(spec.first_step, i);
    const int64_t rows = spec.layout.micro_batch, size = spec.images->size();
    const ImageBatch to(batch, rows, spec.augmentation.pixels);
    batch.first_position = spec.layout.first_position(place.step, spec.rank, place.micro);
    batch.count = rows;
    Image image;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t position = batch.first_position + row;
      const auto epoch = static_cast<uint64_t>(position / size);
      const int64_t wanted = Permutation(size, spec.seed, epoch)(position % size);
      const int64_t index = read_next(*spec.images, wanted, image, *spec.damaged);
      const Crop crop =
          training_crop(spec.augmentation, image.rows, image.cols, spec.seed, position);
      write_pixels(image, crop, spec.augmentation, to.image(row));
      to.labels[static_cast<size_t>(row)] = spec.images->label(index);
    }
    return true;
  };
}

BatchSource image_eval_batches(ImageEvalBatches spec) {
  return [spec = std::move(spec)](int64_t i, Batch& batch) {
    if (i >= spec.rounds.rounds(spec.ranks)) return false;
    const EvalRounds::Range range = spec.rounds.range(i, spec.rank, spec.ranks);
    const ImageBatch to(batch, spec.rounds.batch(), spec.augmentation.pixels);
    batch.first_position = range.first;
    batch.count = range.count;
    Image image;
    for (int64_t row = 0; row < spec.rounds.batch(); ++row) {
      const int64_t index = range.first + row;
      int32_t& label = to.labels[static_cast<size_t>(row)];
      label = kernels::kIgnoreTarget;
      if (row >= range.count || !read_image(*spec.images, index, image, *spec.damaged)) {
        std::ranges::fill(to.image(row), 0.f);
        continue;
      }
      const Crop crop = evaluation_crop(spec.augmentation, image.rows, image.cols);
      write_pixels(image, crop, spec.augmentation, to.image(row));
      label = spec.images->label(index);
    }
    return true;
  };
}

}  // namespace shale
