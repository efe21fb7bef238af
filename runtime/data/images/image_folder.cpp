#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/data/content_scan.h"
#include "shale/runtime/data/images/dataset_internal.h"
#include "shale/runtime/data/once_per_host.h"
#include "shale/runtime/data/split.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::image_internal {
namespace {

namespace fs = std::filesystem;
using data_internal::FileUse;
using data_internal::use_of_name;

struct LabelledFile {
  std::string path;
  int32_t label = 0;
};

// Images of a folder. One process of a host finds them for all processes of the host.
struct FoundImages {
  std::vector<LabelledFile> train, val;
  std::vector<std::string> classes;
  int64_t unused = 0, others = 0;  // number of images for test; number of files that are not images
  uint64_t fingerprint = 0, checksum = 0;
};

void exchange(data_internal::PackedValues& all, LabelledFile& file) {
  exchange_all(all, file.path, file.label);
}

void exchange(data_internal::PackedValues& all, FoundImages& found) {
  exchange_all(all, found.train, found.val, found.classes, found.unused, found.others,
               found.fingerprint, found.checksum);
}

class FolderImages final : public ImageDataset {
 public:
  explicit FolderImages(std::vector<LabelledFile> files = {}) : files_(std::move(files)) {}

  int64_t size() const override { return std::ssize(files_); }
  int32_t label(int64_t index) const override { return at(index).label; }
  void read(int64_t index, Image& to) const override {
    const MappedFile file(at(index).path, {.pattern = AccessPattern::kSequential});
    decode_image(file.bytes(), file.path(), to);
    file.check();
  }

 private:
  const LabelledFile& at(int64_t index) const {
    if (index >= 0 && index < size()) return files_[static_cast<size_t>(index)];
    throw InternalError(cat("images: image ", index, ", expected [0, ", size(), ")"));
  }

  std::vector<LabelledFile> files_;
};

// Returns the names of the folders in a folder, sorted. Each is a class.
std::vector<std::string> classes_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && !name.starts_with('.')) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// An image, and its path without the class folder. This path decides if the image is for training
// or validation. The class name must not decide, because a class may be called "test tube".
struct NamedFile {
  LabelledFile file;
  std::string name;
};

// Finds the images in the class folders of a folder, sorted by name. split: name of the folder that
// contains the class folders. others: counts files that are not images.
void find_images(const fs::path& folder, const std::string& split,
                 const std::vector<std::string>& classes, std::vector<NamedFile>& files,
                 int64_t& others) {
  for (size_t label = 0; label < classes.size(); ++label) {
    std::vector<std::string> paths;
    const fs::path of_class = folder / classes[label];
    if (!fs::is_directory(of_class)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(of_class)) {
      if (!entry.is_regular_file()) continue;
      if (is_image_name(entry.path().filename().string())) {
        paths.push_back(entry.path().string());
      } else {
        ++others;
      }
    }
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
      files.push_back({.file = {.path = path, .label = static_cast<int32_t>(label)},
                       .name = cat(split, "/", fs::relative(path, of_class).string())});
    }
  }
}

// Returns true if a folder next to the class folders is for validation or test, by its name. The
// whole name must consist of letters.
bool is_split_name(const std::string& name) {
  return use_of_name(name) != FileUse::kTrain &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalpha(c); });
}

void check_classes(const fs::path& folder, const std::vector<std::string>& classes,
                   const std::vector<LabelledFile>& files) {
  std::vector<int64_t> counts(classes.size(), 0);
  for (const LabelledFile& file : files) ++counts[static_cast<size_t>(file.label)];
  for (size_t i = 0; i < classes.size(); ++i) {
    if (counts[i] > 0) continue;
    throw DataError(
        cat((folder / classes[i]).string(),
            ": no PNG or JPEG file for training in this class; add some, or remove the folder"));
  }
}

FoundImages find(const ImageDataOptions& options) {
  const fs::path folder = options.path;
  if (!fs::is_directory(folder)) {
    throw DataError(
        cat(options.path, ": expected a folder with one folder of images per class, found a file"));
  }
  const bool is_split = fs::is_directory(folder / "train");
  const fs::path train = is_split ? folder / "train" : folder;
  FoundImages found{.classes = classes_in(train)};
  std::vector<std::string> held_out = classes_in(folder);
  std::erase_if(held_out, [&](const std::string& name) {
    return is_split ? use_of_name(name) == FileUse::kTrain : !is_split_name(name);
  });
  if (!is_split) {
    std::erase_if(found.classes, [](const std::string& name) { return is_split_name(name); });
  }
  if (found.classes.empty()) {
    throw MissingInputError(
        cat(train.string(), ": no class folders found; expected one folder of images per class"));
  }
  std::vector<NamedFile> all;
  find_images(train, "", found.classes, all, found.others);
  if (all.empty()) {
    throw MissingInputError(cat(train.string(), ": no PNG or JPEG file in its class folders"));
  }
  for (const std::string& split : held_out) {
    for (const std::string& name : classes_in(folder / split)) {
      if (std::binary_search(found.classes.begin(), found.classes.end(), name)) continue;
      throw DataError(cat((folder / split / name).string(),
                          ": expected the name of a class, that is, of a folder in ",
                          train.string()));
    }
    find_images(folder / split, split, found.classes, all, found.others);
  }
  std::vector<std::string> names;
  for (const NamedFile& file : all) names.push_back(file.name);
  const std::vector<FileUse> uses = data_internal::divide_files(names, options.path);
  for (size_t i = 0; i < all.size(); ++i) {
    if (uses[i] == FileUse::kNone) {
      ++found.unused;
      continue;
    }
    (uses[i] == FileUse::kValidation ? found.val : found.train).push_back(all[i].file);
  }
  check_classes(train, found.classes, found.train);
  std::vector<std::string> paths;
  for (const auto* files : {&found.train, &found.val}) {
    for (const LabelledFile& file : *files) {
      paths.push_back(file.path);
      found.fingerprint = mix_fingerprint(
          found.fingerprint, fs::relative(file.path, folder).string(), fs::file_size(file.path));
    }
  }
  // Ignores unreadable files. When training reads such a file, it counts against --max-damaged.
  found.checksum = data_internal::sampled_checksum(
      std::ssize(paths), [&](int64_t i) { return paths[static_cast<size_t>(i)]; },
      options.on_reading, /*skip_unreadable=*/true);
  return found;
}

}  // namespace

ImageSplits open_folder(const ImageDataOptions& options) {
  FoundImages found = data_internal::once_per_host<FoundImages>(options.once, [&] {
    try {
      return find(options);
    } catch (const fs::filesystem_error& error) {
      throw DataError(cat(options.path, ": ", error.what()));
    }
  });
  const bool by_name = !found.val.empty();
  ImageSplits splits{.format = ImageFormat::kFolder,
                     .train = std::make_shared<const FolderImages>(std::move(found.train)),
                     .classes = std::move(found.classes),
                     .fingerprint = found.fingerprint,
                     .checksum = found.checksum};
  if (by_name) splits.val = std::make_shared<const FolderImages>(std::move(found.val));
  hold_out(splits, options.val_fraction);
  splits.summary =
      cat("folder: ", splits.train->size(), " training and ",
          splits.val == nullptr ? 0 : splits.val->size(), " validation images",
          by_name ? " (chosen by folder name)" : "", " of ", splits.classes.size(), " classes");
  if (found.unused > 0) {
    splits.summary += cat("; skipped ", found.unused, " images of the test split");
  }
  if (found.others > 0) {
    splits.summary += cat("; skipped ", found.others, " files that are no PNG or JPEG");
  }
  return splits;
}

}  // namespace shale::image_internal
