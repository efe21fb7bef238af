#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shale/runtime/data/images/image.h"
#include "shale/runtime/data/on_reading.h"

namespace shale {

// Pictures with a class each.
class ImageDataset {
 public:
  virtual ~ImageDataset() = default;

  virtual int64_t size() const = 0;
  // Numbers from 0 to size() - 1, else InternalError. Any thread may read.
  virtual int32_t label(int64_t index) const = 0;
  // Throws DataError, naming the file, for one that is damaged.
  virtual void read(int64_t index, Image& to) const = 0;
};

// Kinds of image data.
enum class ImageFormat {
  kAuto,    // by what is there
  kShapes,  // made, not read: see make_shapes()
  // PNG and JPEG files in a folder for each class. If there is a folder train, the classes are in
  // it, and in those beside it that are for validation or test.
  kFolder,
  kCifar,  // the binary files of CIFAR-10 and CIFAR-100
  // Tars with an image and a class for each sample, KEY.jpg (.jpeg, .png) and KEY.cls: one, those
  // of a folder, or of a pattern as x-{000..012}.tar.
  kWebdataset,
  kIdx,  // IDX files of images and labels, as those of MNIST
};
const char* to_string(ImageFormat format);

// What open_images() is asked for.
struct ImageDataOptions {
  std::string path;  // "shapes" for kShapes
  ImageFormat format = ImageFormat::kAuto;
  // Part of the images that is held out, spread evenly, unless the names of files and folders say
  // what is for validation (runtime/data/split.h).
  double val_fraction = 0.1;
  // Of kShapes: pictures for training, and a tenth as many for validation; their edge in pixels.
  int64_t made_images = 8192;
  int64_t made_pixels = 64;
  uint64_t seed = 0;
  int64_t max_damaged = 0;  // samples of kWebdataset that are known to be when it is opened
  OnReading on_reading = {};
};

// Images for training and for validation.
struct ImageSplits {
  ImageFormat format = ImageFormat::kAuto;
  std::shared_ptr<const ImageDataset> train;
  std::shared_ptr<const ImageDataset> val;  // null: there are none
  std::vector<std::string> classes;         // names, by label
  std::string summary;
  // Ranks and resumed runs compare both. The fingerprint covers names, sizes and labels, and all
  // bytes of CIFAR and IDX. The checksum covers class names, the content of folders and tars as far
  // as sampled_checksum() (content_scan.h) reads it, and where images lie in tars.
  uint64_t fingerprint = 0, checksum = 0;
};

// Throws MissingInputError, DataError for what is not there, or is not well-formed, with the file.
ImageSplits open_images(const ImageDataOptions& options);

// Images of another set, by their numbers there.
std::shared_ptr<const ImageDataset> pick_images(std::shared_ptr<const ImageDataset> from,
                                                std::vector<int64_t> indices);

}  // namespace shale
