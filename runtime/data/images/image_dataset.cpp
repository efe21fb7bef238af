#include "shale/runtime/data/images/image_dataset.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/rng.h"
#include "shale/runtime/data/images/dataset_internal.h"
#include "shale/runtime/data/images/shapes.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

class PickedImages final : public ImageDataset {
 public:
  PickedImages(std::shared_ptr<const ImageDataset> from, std::vector<int64_t> indices)
      : from_(std::move(from)), indices_(std::move(indices)) {}

  int64_t size() const override { return std::ssize(indices_); }
  int32_t label(int64_t index) const override { return from_->label(at(index)); }
  void read(int64_t index, Image& to) const override { from_->read(at(index), to); }

 private:
  int64_t at(int64_t index) const {
    if (index >= 0 && index < size()) return indices_[static_cast<size_t>(index)];
    throw InternalError(cat("images: image ", index, ", expected [0, ", size(), ")"));
  }

  std::shared_ptr<const ImageDataset> from_;
  std::vector<int64_t> indices_;
};

ImageSplits open_shapes(const ImageDataOptions& options) {
  const int64_t held_out = std::max<int64_t>(options.made_images / 10, 1);
  const auto make = [&](int64_t images, const char* what) {
    return make_shapes(
        {.images = images, .pixels = options.made_pixels, .seed = options.seed ^ hash_name(what)});
  };
  return {
      .format = ImageFormat::kShapes,
      .train = make(options.made_images, "training"),
      .val = make(held_out, "validation"),
      .classes = shape_classes(),
      .summary = cat("shapes: ", options.made_images, " training and ", held_out,
                     " validation images of ", shape_classes().size(), " classes, ",
                     options.made_pixels, " x ", options.made_pixels),
      .fingerprint = image_internal::mix_fingerprint(
          image_internal::mix_fingerprint(options.seed, "images", uint64_t(options.made_images)),
          "pixels", uint64_t(options.made_pixels))};
}

ImageFormat find_format(const ImageDataOptions& options) {
  if (options.format != ImageFormat::kAuto) return options.format;
  std::error_code error;
  if (image_internal::is_webdataset(options.path)) return ImageFormat::kWebdataset;
  if (!fs::exists(options.path, error)) {
    if (options.path == "shapes") return ImageFormat::kShapes;
    throw MissingInputError(
        cat("--data ", options.path, ": no such file or folder; expected images, or shapes"));
  }
  if (image_internal::is_cifar(options.path)) return ImageFormat::kCifar;
  if (image_internal::is_idx(options.path)) return ImageFormat::kIdx;
  return ImageFormat::kFolder;
}

ImageSplits open_format(const ImageDataOptions& options) {
  const auto format =
      data_internal::once_per_host<ImageFormat>(options.once, [&] { return find_format(options); });
  switch (format) {
    case ImageFormat::kAuto: break;
    case ImageFormat::kShapes: return open_shapes(options);
    case ImageFormat::kFolder: return image_internal::open_folder(options);
    case ImageFormat::kCifar: return image_internal::open_cifar(options);
    case ImageFormat::kIdx: return image_internal::open_idx(options);
    case ImageFormat::kWebdataset: return image_internal::open_webdataset(options);
  }
  throw InternalError("images: unknown format");
}

}  // namespace

const char* to_string(ImageFormat format) {
  switch (format) {
    case ImageFormat::kAuto: return "auto";
    case ImageFormat::kShapes: return "shapes";
    case ImageFormat::kFolder: return "folder";
    case ImageFormat::kCifar: return "cifar";
    case ImageFormat::kIdx: return "idx";
    case ImageFormat::kWebdataset: return "webdataset";
  }
  return "unknown";
}

std::shared_ptr<const ImageDataset> pick_images(std::shared_ptr<const ImageDataset> from,
                                                std::vector<int64_t> indices) {
  return std::make_shared<const PickedImages>(std::move(from), std::move(indices));
}

ImageSplits open_images(const ImageDataOptions& options) {
  ImageSplits splits = open_format(options);
  for (const std::string& name : splits.classes) {
    splits.checksum = image_internal::mix_fingerprint(splits.checksum, "class", hash_name(name));
  }
  return splits;
}

namespace image_internal {

void hold_out(ImageSplits& splits, double val_fraction) {
  const int64_t all = splits.train->size();
  const auto held_out = static_cast<int64_t>(static_cast<double>(all) * val_fraction);
  if (splits.val != nullptr || held_out == 0) return;
  std::vector<int64_t> train, val;
  for (int64_t i = 0; i < all; ++i) {
    // True for `held_out` of `all` images, which are spread evenly.
    const bool is_out = (i + 1) * held_out / all > i * held_out / all;
    (is_out ? val : train).push_back(i);
  }
  splits.val = pick_images(splits.train, std::move(val));
  splits.train = pick_images(splits.train, std::move(train));
}

uint64_t mix_fingerprint(uint64_t fingerprint, std::string_view name, uint64_t value) {
  fingerprint = (fingerprint ^ hash_name(name)) * 0x9e3779b97f4a7c15u;
  return (fingerprint ^ fingerprint >> 32 ^ value) * 0x9e3779b97f4a7c15u;
}

void check_label(int64_t label, int64_t classes, const std::string& source, int64_t index) {
  if (label >= 0 && label < classes) return;
  throw DataError(
      cat(source, ": the label of image ", index, " is ", label, ", expected 0 to ", classes - 1));
}

}  // namespace image_internal
}  // namespace shale
