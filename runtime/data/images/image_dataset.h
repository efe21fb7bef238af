#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shale/runtime/data/images/image.h"
#include "shale/runtime/data/on_reading.h"
#include "shale/runtime/data/once_per_host.h"

namespace shale {

// Images with one class each.
class ImageDataset {
 public:
  virtual ~ImageDataset() = default;

  virtual int64_t size() const = 0;
  // index: 0 to size() - 1, else InternalError. Thread-safe.
  virtual int32_t label(int64_t index) const = 0;
  // Throws DataError, with the file, for a damaged image.
  virtual void read(int64_t index, Image& to) const = 0;
};

// Formats of image data.
enum class ImageFormat {
  kAuto,    // detected from the path
  kShapes,  // generated, not read: see make_shapes()
  // PNG and JPEG files in one folder per class. If there is a folder `train`, it contains the class
  // folders, and folders next to it may contain those for validation or test.
  kFolder,
  kCifar,  // binary files of CIFAR-10 and CIFAR-100
  // Tar files with an image and a class per sample: KEY.jpg (.jpeg, .png) and KEY.cls. Either one
  // file, all of a folder, or those of a pattern such as x-{000..012}.tar.
  kWebdataset,
  kIdx,  // IDX files of images and labels, as for MNIST
};
const char* to_string(ImageFormat format);

// Options of open_images().
struct ImageDataOptions {
  std::string path;  // "shapes" for kShapes
  ImageFormat format = ImageFormat::kAuto;
  // Fraction of the images to hold out for validation, evenly spread. Unused if names of files and
  // folders mark validation data (runtime/data/split.h).
  double val_fraction = 0.1;
  // kShapes: number of training images, and their edge in pixels. One tenth of this number is made
  // for validation.
  int64_t made_images = 8192;
  int64_t made_pixels = 64;
  uint64_t seed = 0;
  int64_t max_damaged = 0;  // maximum number of damaged samples in kWebdataset's archives
  OnReading on_reading = {};
  // As in DataOptions, for the format, kFolder and kWebdataset; other formats have few files.
  OncePerHost once = {};
};

// Training and validation images.
struct ImageSplits {
  ImageFormat format = ImageFormat::kAuto;
  std::shared_ptr<const ImageDataset> train;
  std::shared_ptr<const ImageDataset> val;  // null: no validation images
  std::vector<std::string> classes;         // class names by label
  std::string summary;
  // Compared between ranks, and with a resumed run. fingerprint: names, sizes and labels, and all
  // bytes of CIFAR and IDX files. checksum: class names, sampled contents of folders and tars
  // (sampled_checksum() in content_scan.h), offsets of images in tars.
  uint64_t fingerprint = 0, checksum = 0;
};

// Throws MissingInputError for missing files, DataError for malformed ones, with the file.
ImageSplits open_images(const ImageDataOptions& options);

// Returns a subset of another dataset: the images with these indices.
std::shared_ptr<const ImageDataset> pick_images(std::shared_ptr<const ImageDataset> from,
                                                std::vector<int64_t> indices);

}  // namespace shale
