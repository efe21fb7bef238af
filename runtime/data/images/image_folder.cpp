#include <algorithm>
#include <filesystem>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/data/content_scan.h"
#include "shale/runtime/data/images/dataset_internal.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::image_internal {
namespace {

namespace fs = std::filesystem;

struct LabelledFile {
  std::string path;
  int32_t label = 0;
};

class FolderImages final : public ImageDataset {
 public:
  explicit FolderImages(std::vector<LabelledFile> files = {}) : files_(std::move(files)) {}

  int64_t size() const override { return std::ssize(files_); }
  int32_t label(int64_t index) const override { return at(index).label; }
  const std::string& path(int64_t index) const { return at(index).path; }
  void read(int64_t index, Image& to) const override {
    const MappedFile file(at(index).path, {.pattern = AccessPattern::kSequential});
    decode_image(file.bytes(), file.path(), to);
    file.check();
  }

 private:
  const LabelledFile& at(int64_t index) const {
    if (index >= 0 && index < size()) return files_[static_cast<size_t>(index)];
    throw InternalError(cat("images: image ", index, ", want [0, ", size(), ")"));
  }

  std::vector<LabelledFile> files_;
};

// The folders in a folder, by name; each is a class.
std::vector<std::string> classes_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && !name.starts_with('.')) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The images below the folders of classes, by name; joins names and sizes to a fingerprint.
std::vector<LabelledFile> files_in(const fs::path& folder, const std::vector<std::string>& classes,
                                   uint64_t& fingerprint) {
  std::vector<LabelledFile> files;
  for (size_t label = 0; label < classes.size(); ++label) {
    std::vector<std::string> names;
    const fs::path of_class = folder / classes[label];
    if (!fs::is_directory(of_class)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(of_class)) {
      if (entry.is_regular_file() && is_image_name(entry.path().filename().string())) {
        names.push_back(entry.path().string());
      }
    }
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      fingerprint =
          mix_fingerprint(fingerprint, fs::relative(name, folder).string(), fs::file_size(name));
      files.push_back({.path = name, .label = static_cast<int32_t>(label)});
    }
  }
  return files;
}

ImageSplits open(const ImageDataOptions& options) {
  const fs::path folder = options.path;
  const bool is_split = fs::is_directory(folder / "train");
  const fs::path train = is_split ? folder / "train" : folder;
  ImageSplits splits{.format = ImageFormat::kFolder, .classes = classes_in(train)};
  if (splits.classes.empty()) {
    throw MissingInputError(cat(train.string(), ": no folder in it, want one for each class"));
  }
  const auto for_training =
      std::make_shared<const FolderImages>(files_in(train, splits.classes, splits.fingerprint));
  if (for_training->size() == 0) {
    throw MissingInputError(cat(train.string(), ": no PNG or JPEG file in its folders"));
  }
  auto for_validation = std::make_shared<const FolderImages>();
  if (is_split && fs::is_directory(folder / "val")) {
    for (const std::string& name : classes_in(folder / "val")) {
      if (std::binary_search(splits.classes.begin(), splits.classes.end(), name)) continue;
      throw DataError(
          cat((folder / "val" / name).string(), ": there is no such class in ", train.string()));
    }
    for_validation = std::make_shared<const FolderImages>(
        files_in(folder / "val", splits.classes, splits.fingerprint));
  }
  splits.train = for_training;
  if (for_validation->size() > 0) splits.val = for_validation;
  const int64_t count = for_training->size();
  // A file that cannot be read counts towards --max-damaged when training comes to it.
  splits.checksum = data_internal::sampled_checksum(
      count + for_validation->size(),
      [&](int64_t i) {
        return i < count ? for_training->path(i) : for_validation->path(i - count);
      },
      options.on_reading, /*skip_unreadable=*/true);
  hold_out(splits, options.val_fraction);
  splits.summary = cat("folder: ", splits.train->size(), " training and ",
                       splits.val == nullptr ? 0 : splits.val->size(), " validation images of ",
                       splits.classes.size(), " classes");
  return splits;
}

}  // namespace

ImageSplits open_folder(const ImageDataOptions& options) {
  try {
    return open(options);
  } catch (const fs::filesystem_error& error) {
    throw DataError(cat(options.path, ": ", error.what()));
  }
}

}  // namespace shale::image_internal
