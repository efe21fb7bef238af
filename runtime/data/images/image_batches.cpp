#include "shale/runtime/data/images/image_batches.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/kernels/loss.h"

namespace shale {
namespace {

// The fields of an image batch, and the number of elements per image.
struct ImageBatch {
  // soft_classes: number of classes for soft targets; 0: only class labels.
  ImageBatch(Batch& batch, int64_t rows, int64_t pixels, int64_t soft_classes = 0)
      : row_values(pixels * pixels * 3), classes(soft_classes) {
    // Adds all fields before it uses any, because adding a field moves the others in memory.
    batch.set("images", DType::kF32, {rows, pixels, pixels, 3});
    batch.set("labels", DType::kI32, {rows});
    if (classes > 0) {
      softening = batch.set("softening", DType::kF32, {rows, classes}).values<float>();
    }
    labels = batch.set("labels", DType::kI32, {rows}).values<int32_t>();
    images = batch.set("images", DType::kF32, {rows, pixels, pixels, 3}).values<float>();
  }
  std::span<float> softening_of(int64_t row) const {
    return softening.subspan(static_cast<size_t>(row * classes), static_cast<size_t>(classes));
  }
  std::span<float> image(int64_t row) const {
    return images.subspan(static_cast<size_t>(row * row_values), static_cast<size_t>(row_values));
  }

  int64_t row_values, classes;
  std::span<float> images, softening;
  std::span<int32_t> labels;
};

// Reads an image; returns false if it is damaged.
bool read_image(const ImageDataset& images, int64_t index, Image& to, DamagedImages& damaged) {
  try {
    images.read(index, to);
    return true;
  } catch (const DataError& error) {
    damaged.add(index, error.what());
    return false;
  }
}

// Reads image `index`; if it is damaged, the next image that is not. Returns the index of the image
// read.
int64_t read_next(const ImageDataset& images, int64_t index, Image& to, DamagedImages& damaged) {
  for (int64_t tried = 0; tried < images.size(); ++tried) {
    if (read_image(images, index, to, damaged)) return index;
    index = (index + 1) % images.size();
  }
  throw DataError("images: all images are damaged, expected at least one that can be read");
}

}  // namespace

void DamagedImages::add(int64_t index, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (!found_.insert(index).second) return;
  if (std::ssize(found_) > limit_) {
    throw DataError(cat(what, "; ", found_.size(), found_.size() == 1 ? " image is" : " images are",
                        " damaged, expected at most ", limit_, " (--max-damaged)"));
  }
  log_warning(what, "; this image is left out");
}

int64_t DamagedImages::count() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(found_);
}

namespace {

// Writes the sample at a position, without mixing it with another. Returns its label.
int32_t write_sample(const ImageTrainBatches& spec, int64_t position, Image& image,
                     std::span<float> to) {
  const int64_t size = spec.images->size();
  const auto epoch = static_cast<uint64_t>(position / size);
  const int64_t wanted = Permutation(size, spec.seed, epoch)(position % size);
  const int64_t index = read_next(*spec.images, wanted, image, *spec.damaged);
  write_training_pixels(image, spec.augmentation, spec.seed, position, to);
  return spec.images->label(index);
}

// Mixes the samples of a batch that begins at position `first`. The other sample of a pair may be
// in another batch, of this or another rank. Its pixels and label are then computed here.
void mix_batch(const ImageTrainBatches& spec, int64_t first, const ImageBatch& to, Image& image) {
  const auto rows = std::ssize(to.labels);
  const int64_t pixels = spec.augmentation.pixels;
  std::vector<float> others(static_cast<size_t>(2 * to.row_values));
  const std::span<float> own = std::span(others).first(static_cast<size_t>(to.row_values));
  const std::span<float> other = std::span(others).subspan(own.size());
  const auto mixed = [&](int64_t row, std::span<const float> mine, std::span<const float> theirs,
                         std::pair<int32_t, int32_t> labels) {
    const Mix mix = draw_mix(spec.mix, pixels, spec.seed, first + row);
    if (spec.mix.mixes()) mix_pixels(mix, pixels, mine, theirs, to.image(row));
    write_softening(mix, spec.mix.label_smoothing, labels, to.softening_of(row));
  };
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t partner = mix_partner(first + row) - first;
    const int32_t label = to.labels[static_cast<size_t>(row)];
    if (!spec.mix.mixes()) {
      mixed(row, {}, {}, {label, label});
    } else if (partner < 0 || partner >= rows) {
      const int32_t theirs = write_sample(spec, first + partner, image, other);
      mixed(row, to.image(row), other, {label, theirs});
    } else if (partner > row) {
      std::ranges::copy(to.image(row), own.begin());
      std::ranges::copy(to.image(partner), other.begin());
      const int32_t theirs = to.labels[static_cast<size_t>(partner)];
      mixed(row, own, other, {label, theirs});
      mixed(partner, other, own, {theirs, label});
    }
  }
}

}  // namespace

BatchSource image_train_batches(ImageTrainBatches spec) {
  spec.layout.validate();
  if (spec.rank < 0 || spec.rank >= spec.layout.ranks) {
    throw InternalError(
        cat("batches: rank ", spec.rank, ", expected [0, ", spec.layout.ranks, ")"));
  }
  return [spec = std::move(spec)](int64_t i, Batch& batch) {
    const BatchLayout::Place place = spec.layout.place_of(spec.first_step, i);
    const int64_t rows = spec.layout.micro_batch;
    const ImageBatch to(batch, rows, spec.augmentation.pixels,
                        spec.mix.is_soft() ? spec.classes : 0);
    batch.first_position = spec.layout.first_position(place.step, spec.rank, place.micro);
    batch.count = rows;
    Image image;
    for (int64_t row = 0; row < rows; ++row) {
      to.labels[static_cast<size_t>(row)] =
          write_sample(spec, batch.first_position + row, image, to.image(row));
    }
    if (spec.mix.is_soft()) mix_batch(spec, batch.first_position, to, image);
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
