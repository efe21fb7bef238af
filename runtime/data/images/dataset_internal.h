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

// Whether a path is, or a folder has, what open_webdataset(), open_cifar(), open_idx() read.
bool is_webdataset(const std::string& path);
bool is_cifar(const std::string& path);
bool is_idx(const std::string& path);

// Cuts off what is held out, where there is no set for validation: images spread evenly.
void hold_out(ImageSplits& splits, double val_fraction);

// Joins a named value to a fingerprint.
uint64_t mix_fingerprint(uint64_t fingerprint, std::string_view name, uint64_t value);

// Throws DataError for a label that is none of `classes`.
void check_label(int64_t label, int64_t classes, const std::string& source, int64_t index);

}  // namespace shale::image_internal
