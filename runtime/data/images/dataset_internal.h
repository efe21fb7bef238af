#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/data/images/image_dataset.h"

namespace shale::image_internal {

ImageSplits open_folder(const ImageDataOptions& options);
ImageSplits open_cifar(const ImageDataOptions& options);
ImageSplits open_idx(const ImageDataOptions& options);
ImageSplits open_webdataset(const ImageDataOptions& options);

// Return true if the path contains data that open_webdataset(), open_cifar() or open_idx() can
// read. The path is a file or a folder.
bool is_webdataset(const std::string& path);
bool is_cifar(const std::string& path);
bool is_idx(const std::string& path);

// If there is no validation set, moves evenly spread images from training to validation.
void hold_out(ImageSplits& splits, double val_fraction);

// Combines a named value with a fingerprint.
uint64_t mix_fingerprint(uint64_t fingerprint, std::string_view name, uint64_t value);

// Throws DataError unless the label is in [0, classes).
void check_label(int64_t label, int64_t classes, const std::string& source, int64_t index);

}  // namespace shale::image_internal
