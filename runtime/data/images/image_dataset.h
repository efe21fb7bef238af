#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shale/runtime/data/images/image.h"
#include "shale/runtime/data/on_reading.h"
#include "shale/runtime/data/once_per_host.h"

namespace shale {

// A set of images. Each image has one class.
class ImageDataset {
 public:
  virtual ~ImageDataset() = default;

  virtual int64_t size() const = 0;
  // Returns the label of an image. index: 0 to size() - 1, else InternalError. Thread-safe.
  virtual int32_t label(int64_t index) const = 0;
  // Reads an image. Throws DataError, with the file, if it is damaged.
  virtual void read(int64_t index, Image& to) const = 0;
};

// Formats of image data.
enum class ImageFormat {
  kAuto,    // detected from the path
  kShapes,  // generated images, see make_shapes()
  // PNG and JPEG files in one folder per class. If there is a folder `train`, it contains the class
  // folders, and the folders next to it may contain those for validation or test.
  kFolder,
  kCifar,  // binary files of CIFAR-10 and CIFAR-100
  // Tar files with an image and a class per sample: KEY.jpg (.jpeg, .png) and KEY.cls. The path is
  // one tar file, a folder of them, or a pattern such as x-{000..012}.tar.
  kWebdataset,
  kIdx,  // IDX files of images and labels, as for MNIST
};
const char* to_string(ImageFormat format);

// Options of open_images().
struct ImageDataOptions {
  std::string path;  // path of the data; "shapes" for kShapes
  ImageFormat format = ImageFormat::kAuto;
  // Fraction of the images to hold out for validation; they are spread evenly. Unused if names of
  // files and folders mark validation data (runtime/data/split.h).
  double val_fraction = 0.1;
  // For kShapes: number of training images, and their edge length in pixels. One tenth of this
  // number is generated for validation.
  int64_t made_images = 8192;
  int64_t made_pixels = 64;
  uint64_t seed = 0;
  int64_t max_damaged = 0;  // for kWebdataset: maximum number of damaged samples
  OnReading on_reading = {};
  // See DataOptions::once. One process of a host finds the format, and lists the files of kFolder
  // and kWebdataset. Other formats have few files, which each process opens.
  OncePerHost once = {};
};

// Training and validation images.
struct ImageSplits {
  ImageFormat format = ImageFormat::kAuto;
  std::shared_ptr<const ImageDataset> train;
  std::shared_ptr<const ImageDataset> val;  // null: there are no validation images
  std::vector<std::string> classes;         // class names by label
  std::string summary;
  // Values that must be equal on all ranks, and when a run resumes. fingerprint: names, sizes and
  // labels, and all bytes of CIFAR and IDX files. checksum: class names, sampled contents of
  // folders and tars (sampled_checksum() in content_scan.h), offsets of images in tars.
  uint64_t fingerprint = 0, checksum = 0;
};

// Opens image data. Throws MissingInputError for missing files, DataError for malformed files, with
// the name of the file.
ImageSplits open_images(const ImageDataOptions& options);

// Returns the images of `from` with these indices, as a dataset.
std::shared_ptr<const ImageDataset> pick_images(std::shared_ptr<const ImageDataset> from,
                                                std::vector<int64_t> indices);

}  // namespace shale
