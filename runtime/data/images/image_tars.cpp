// WebDataset archives (github.com/webdataset/webdataset). Consecutive members with the same key
// form a sample. The key is the path of a member up to the first dot in its file name.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/content_scan.h"
#include "shale/runtime/data/images/dataset_internal.h"
#include "shale/runtime/data/images/tar_index.h"
#include "shale/runtime/data/once_per_host.h"
#include "shale/runtime/data/split.h"
#include "shale/runtime/io/file_maps.h"

namespace shale::image_internal {
namespace {

namespace fs = std::filesystem;
using data_internal::FileUse;

constexpr int64_t kMostClasses = 1 << 24;
constexpr size_t kMostFiles = 1'000'000;

class TarImages final : public ImageDataset {
 public:
  int64_t size() const override { return std::ssize(samples_); }
  int32_t label(int64_t index) const override { return at(index).label; }
  void read(int64_t index, Image& to) const override {
    const Sample& sample = at(index);
    if (sample.bytes == kDamaged) throw DataError(damaged_[static_cast<size_t>(sample.begin)]);
    const std::shared_ptr<const MappedFile> file = files_.map(sample.file);
    const auto content =
        file->bytes().subspan(static_cast<size_t>(sample.begin), static_cast<size_t>(sample.bytes));
    file->will_need(content);
    decode_image(content, cat(file->path(), ", image at byte ", sample.begin), to);
    file->check();
  }

  const std::vector<std::string>& damaged() const { return damaged_; }
  int32_t classes() const { return classes_; }
  // returns a hash of names, sizes, keys and labels
  uint64_t fingerprint() const { return fingerprint_; }
  // returns a checksum of the images' offsets in the archives
  uint64_t places() const { return places_; }

  void add(const std::string& path) {
    number_ = files_.add(MappedFile(path, {.pattern = AccessPattern::kRandom}));
    file_ = files_.map(number_);
    fingerprint_ =
        mix_fingerprint(fingerprint_, fs::path(path).filename().string(), file_->bytes().size());
    Open open;
    const std::string problem =
        index_tar(file_->bytes(), [&](const TarMember& member) { add_member(member, open); });
    close(open);
    if (!problem.empty()) add_damaged(cat(path, ": ", problem, "; later samples are missing"));
    std::exchange(file_, nullptr)->check();
  }

  // Packs the archives and the positions of their images into `all`, or unpacks them from it.
  void exchange(data_internal::PackedValues& all) {
    exchange_all(all, files_, samples_, damaged_, classes_, fingerprint_, places_);
  }

 private:
  // Position of a sample's image in an archive. For a damaged sample, `bytes` is kDamaged and
  // `begin` is an index in damaged_.
  struct Sample {
    int64_t begin = 0, bytes = 0;
    size_t file = 0;
    int32_t label = 0;
  };
  static constexpr int64_t kDamaged = -1;

  // The sample that is being read. More of its members may follow in the archive.
  struct Open {
    std::string key;
    std::set<std::string> endings;
    Sample sample;
    bool has_image = false, has_label = false;
    std::string problem;
  };

  const Sample& at(int64_t index) const {
    if (index >= 0 && index < size()) return samples_[static_cast<size_t>(index)];
    throw InternalError(cat("images: image ", index, ", expected [0, ", size(), ")"));
  }

  void add_damaged(const std::string& what) {
    samples_.push_back({.begin = std::ssize(damaged_), .bytes = kDamaged, .file = number_});
    damaged_.push_back(what);
  }

  void add_member(const TarMember& member, Open& open) {
    const size_t folder = member.name.rfind('/') + 1;  // position 0 if the name contains no folder
    const size_t dot = member.name.find('.', folder);
    if (dot == folder || dot == member.name.npos || member.name.compare(folder, 2, "__") == 0) {
      return;
    }
    const std::string key = member.name.substr(0, dot);
    std::string ending = member.name.substr(dot + 1);
    std::transform(ending.begin(), ending.end(), ending.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (key != open.key) {
      close(open);
      open = {.key = key, .sample = {.file = number_}};
    }
    if (!open.endings.insert(ending).second) open.problem = cat("has .", ending, " twice");
    if (ending == "cls") {
      open.has_label = true;
      take_label(member, open);
    } else if (ending.find('.') == ending.npos && is_image_name(cat(".", ending))) {
      if (open.has_image && open.problem.empty()) open.problem = "has several images";
      open.has_image = true;
      open.sample.begin = member.begin, open.sample.bytes = member.bytes;
    }
  }

  void take_label(const TarMember& member, Open& open) {
    std::string_view text =
        file_->text().substr(static_cast<size_t>(member.begin), static_cast<size_t>(member.bytes));
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
      text.remove_suffix(1);
    }
    const auto label = parse_int(text);
    if (!label || *label < 0 || *label >= kMostClasses) {
      open.problem = cat("has the class ", excerpt(text, 20), ", expected a number from 0 on");
      return;
    }
    open.sample.label = static_cast<int32_t>(*label);
  }

  void close(Open& open) {
    if (open.problem.empty() && open.has_image != open.has_label) {
      open.problem = open.has_image ? "has no .cls" : "has no .jpg, .jpeg or .png";
    }
    if (!open.problem.empty()) {
      add_damaged(cat(file_->path(), ": ", excerpt(open.key), " ", open.problem));
    } else if (open.has_image) {
      samples_.push_back(open.sample);
      classes_ = std::max(classes_, open.sample.label + 1);
      fingerprint_ = mix_fingerprint(fingerprint_, open.key, uint64_t(open.sample.label));
      places_ = mix_fingerprint(places_, "begin", uint64_t(open.sample.begin));
      places_ = mix_fingerprint(places_, "bytes", uint64_t(open.sample.bytes));
    }
    open = {};
  }

  FileMaps files_;
  // archive that add() is reading; number_ is its number in files_
  std::shared_ptr<const MappedFile> file_;
  size_t number_ = 0;
  std::vector<Sample> samples_;
  std::vector<std::string> damaged_;
  int32_t classes_ = 0;
  uint64_t fingerprint_ = 0, places_ = 0;
};

// Expands a pattern: "a-{08..11}.tar" becomes a-08.tar to a-11.tar.
std::vector<std::string> expand(const std::string& pattern) {
  const size_t open = pattern.find('{'), close = pattern.find('}', open);
  if (open == pattern.npos || close == pattern.npos) return {pattern};
  const std::string range = pattern.substr(open + 1, close - open - 1);
  const size_t dots = range.find("..");
  const auto first = parse_int(range.substr(0, dots));
  const auto last = dots == range.npos ? first : parse_int(range.substr(dots + 2));
  if (dots == range.npos || !first || !last || *first < 0 || *last < *first ||
      *last - *first >= static_cast<int64_t>(kMostFiles)) {
    throw ConfigError(cat("--data ", pattern, ": {", range,
                          "} is not a range, expected one such as {000000..000009}"));
  }
  std::vector<std::string> names;
  for (int64_t number = *first; number <= *last; ++number) {
    std::string digits = std::to_string(number);
    digits.insert(0, dots - std::min(dots, digits.size()), '0');
    for (const std::string& name :
         expand(cat(pattern.substr(0, open), digits, pattern.substr(close + 1)))) {
      names.push_back(name);
    }
  }
  return names;
}

bool is_tar_name(const fs::path& path) {
  return path.extension() == ".tar";
}

// Returns the archives, each with true if it is for validation. Counts archives that are not used.
std::vector<std::pair<std::string, bool>> archives_of(const std::string& path, int64_t& unused) {
  std::vector<std::string> paths, names;
  if (fs::is_directory(path)) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file() && is_tar_name(entry.path())) {
        paths.push_back(entry.path().string());
      }
    }
    std::sort(paths.begin(), paths.end());
    for (const std::string& file : paths) names.push_back(fs::relative(file, path).string());
  } else {
    paths = expand(path);
    // If the user names a single file, its name does not decide between training and validation.
    const size_t begin = path.rfind('/', path.find('{')) + 1;
    for (const std::string& file : paths) {
      names.push_back(file == path ? std::string() : file.substr(begin));
    }
  }
  const std::vector<FileUse> uses = data_internal::divide_files(names, path);
  std::vector<std::pair<std::string, bool>> files;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (uses[i] != FileUse::kNone) files.emplace_back(paths[i], uses[i] == FileUse::kValidation);
  }
  unused = std::ssize(paths) - std::ssize(files);
  return files;
}

void check_damage(const TarImages& train, const TarImages& val, int64_t limit) {
  const auto count = std::ssize(train.damaged()) + std::ssize(val.damaged());
  if (count <= limit) return;
  const std::string& first = train.damaged().empty() ? val.damaged()[0] : train.damaged()[0];
  throw DataError(cat(first, "; ", count, count == 1 ? " sample is" : " samples are",
                      " damaged, expected at most ", limit, " (--max-damaged)"));
}

// Archives and their samples. One process of a host finds them for all processes of the host.
struct FoundTars {
  std::shared_ptr<TarImages> train = std::make_shared<TarImages>(),
                             val = std::make_shared<TarImages>();
  int64_t tars = 0, unused = 0;
  uint64_t checksum = 0;
};

void exchange(data_internal::PackedValues& all, FoundTars& found) {
  found.train->exchange(all);
  found.val->exchange(all);
  exchange_all(all, found.tars, found.unused, found.checksum);
}

FoundTars find(const ImageDataOptions& options) {
  FoundTars found;
  const auto files = archives_of(options.path, found.unused);
  for (const auto& [file, is_val] : files) (is_val ? found.val : found.train)->add(file);
  check_damage(*found.train, *found.val, options.max_damaged);
  if (found.train->size() == std::ssize(found.train->damaged())) {
    throw MissingInputError(
        cat(options.path, ": its tar files have no sample with an image and a .cls file"));
  }
  found.tars = std::ssize(files);
  found.checksum = data_internal::sampled_checksum(
      found.tars, [&](int64_t i) { return files[static_cast<size_t>(i)].first; },
      options.on_reading);
  return found;
}

}  // namespace

bool is_webdataset(const std::string& path) {
  std::error_code error;
  if (is_tar_name(path)) return true;
  if (!fs::is_directory(path, error)) return false;
  for (const std::string folder : {"", "train"}) {
    for (const fs::directory_entry& entry :
         fs::directory_iterator(fs::path(path) / folder, error)) {
      if (is_tar_name(entry.path())) return true;
    }
  }
  return false;
}

ImageSplits open_webdataset(const ImageDataOptions& options) {
  const auto [train, val, tars, unused, checksum] =
      data_internal::once_per_host<FoundTars>(options.once, [&] {
        try {
          return find(options);
        } catch (const fs::filesystem_error& error) {
          throw DataError(cat(options.path, ": ", error.what()));
        }
      });
  ImageSplits splits{
      .format = ImageFormat::kWebdataset,
      .train = train,
      .fingerprint = mix_fingerprint(train->fingerprint(), "validation", val->fingerprint()),
      .checksum = checksum};
  for (const auto* images : {&train, &val}) {
    splits.checksum = mix_fingerprint(splits.checksum, "places", (*images)->places());
  }
  if (val->size() > 0) splits.val = val;
  for (int32_t i = 0; i < std::max(train->classes(), val->classes()); ++i) {
    splits.classes.push_back(std::to_string(i));
  }
  hold_out(splits, options.val_fraction);
  splits.summary = cat("webdataset: ", splits.train->size(), " training and ",
                       splits.val == nullptr ? 0 : splits.val->size(), " validation images of ",
                       splits.classes.size(), " classes in ", tars, " tars",
                       unused > 0 ? cat("; skipped ", unused, " tars of the test split") : "");
  return splits;
}

}  // namespace shale::image_internal
