// Files of CIFAR and IDX, whose records have a fixed size.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/data/content_scan.h"
#include "shale/runtime/data/images/dataset_internal.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::image_internal {
namespace {

namespace fs = std::filesystem;

// Position of the records in the files of pixels and labels, which may be one file.
struct Records {
  std::shared_ptr<const MappedFile> pixels, labels;
  int64_t count = 0;
  // offset of the first image; bytes from one image to the next
  int64_t pixels_begin = 0, pixels_step = 0;
  int64_t labels_begin = 0, labels_step = 0;
  int64_t rows = 0, cols = 0, planes = 0;
};

class RecordImages final : public ImageDataset {
 public:
  explicit RecordImages(std::vector<Records> files) : files_(std::move(files)) {
    for (const Records& file : files_) size_ += file.count;
  }

  int64_t size() const override { return size_; }
  int32_t label(int64_t index) const override {
    const auto [file, record] = place(index);
    return static_cast<int32_t>(
        byte(*file->labels, file->labels_begin + record * file->labels_step));
  }
  void read(int64_t index, Image& to) const override {
    const auto [file, record] = place(index);
    to.resize(file->rows, file->cols, file->planes);
    const int64_t area = file->rows * file->cols;
    const auto bytes = file->pixels->bytes().subspan(
        static_cast<size_t>(file->pixels_begin + record * file->pixels_step));
    for (int64_t i = 0; i < area; ++i) {
      for (int64_t c = 0; c < file->planes; ++c) {
        to.pixels[size_t(i * file->planes + c)] = uint8_t(bytes[size_t(c * area + i)]);
      }
    }
    file->pixels->check();
  }

  // Returns a fingerprint that combines `before` with all bytes. Records are read in random order
  // afterwards.
  uint64_t fingerprint(uint64_t before, const OnReading& on_reading) const {
    for (const Records& file : files_) {
      const uint32_t pixels = data_internal::whole_crc(*file.pixels, on_reading);
      const uint32_t labels =
          file.labels == file.pixels ? pixels : data_internal::whole_crc(*file.labels, on_reading);
      before = mix_fingerprint(mix_fingerprint(before, "pixels", pixels), "labels", labels);
      file.pixels->advise(AccessPattern::kRandom);
      file.labels->advise(AccessPattern::kRandom);
    }
    return before;
  }
  void check_labels(int64_t classes) const {
    for (int64_t i = 0; i < size_; ++i) {
      check_label(label(i), classes, place(i).first->labels->path(), i);
    }
  }

 private:
  static uint8_t byte(const MappedFile& file, int64_t at) {
    return uint8_t(file.bytes()[static_cast<size_t>(at)]);
  }
  std::pair<const Records*, int64_t> place(int64_t index) const {
    for (int64_t left = index; const Records& file : files_) {
      if (left >= 0 && left < file.count) return {&file, left};
      left -= file.count;
    }
    throw InternalError(cat("images: image ", index, ", expected [0, ", size_, ")"));
  }

  std::vector<Records> files_;
  int64_t size_ = 0;
};

std::shared_ptr<const MappedFile> map(const fs::path& path) {
  return std::make_shared<const MappedFile>(path.string(),
                                            MapOptions{.pattern = AccessPattern::kSequential});
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

ImageSplits make_splits(ImageFormat format, std::vector<Records> train, std::vector<Records> val,
                        std::vector<std::string> classes, const ImageDataOptions& options) {
  const auto training = std::make_shared<const RecordImages>(std::move(train));
  training->check_labels(std::ssize(classes));
  ImageSplits splits{.format = format,
                     .train = training,
                     .classes = std::move(classes),
                     .fingerprint = training->fingerprint(0, options.on_reading)};
  if (!val.empty()) {
    const auto validation = std::make_shared<const RecordImages>(std::move(val));
    validation->check_labels(std::ssize(splits.classes));
    splits.fingerprint = validation->fingerprint(splits.fingerprint, options.on_reading);
    splits.val = validation;
  }
  hold_out(splits, options.val_fraction);
  Image first;
  splits.train->read(0, first);
  splits.summary = cat(to_string(format), ": ", splits.train->size(), " training and ",
                       splits.val == nullptr ? 0 : splits.val->size(), " validation images of ",
                       splits.classes.size(), " classes, ", first.cols, " x ", first.rows);
  return splits;
}

// ---- CIFAR: a label (or a coarse and a fine one), then 32 x 32 pixels, planar ----

constexpr int64_t kCifarEdge = 32, kCifarPixels = 3 * kCifarEdge * kCifarEdge;

Records cifar_records(const fs::path& path, int64_t labels) {
  const auto file = map(path);
  const auto bytes = std::ssize(file->bytes());
  const int64_t record = labels + kCifarPixels;
  if (bytes % record != 0) {
    throw DataError(cat(path.string(), ": ", bytes, " bytes, expected a multiple of ", record));
  }
  return {.pixels = file,
          .labels = file,
          .count = bytes / record,
          .pixels_begin = labels,
          .pixels_step = record,
          .labels_begin = labels - 1,
          .labels_step = record,
          .rows = kCifarEdge,
          .cols = kCifarEdge,
          .planes = 3};
}

// Reads class names from a file, one per line. Returns numbers if the file does not exist.
std::vector<std::string> names_in(const fs::path& path, int64_t classes) {
  std::vector<std::string> names;
  if (is_there(path)) {
    const MappedFile file(path.string());
    for (std::string_view text = file.text(); !text.empty();) {
      const size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!line.empty()) names.emplace_back(line);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (std::ssize(names) != classes) {
      throw DataError(cat(path.string(), ": ", names.size(),
                          " names, expected one for each of the ", classes, " classes"));
    }
  }
  for (int64_t i = std::ssize(names); i < classes; ++i) names.push_back(std::to_string(i));
  return names;
}

// ---- IDX (yann.lecun.com/exdb/mnist): a magic number, then 32-bit big-endian sizes ----

struct IdxHeader {
  std::vector<int64_t> sizes;
  int64_t bytes = 0;
};

IdxHeader idx_header(const MappedFile& file, int dimensions) {
  const auto bytes = file.bytes();
  const auto fail = [&](const std::string& what) {
    throw DataError(cat(file.path(), ": ", what, ", expected an IDX file of bytes with ",
                        dimensions, dimensions == 1 ? " dimension" : " dimensions"));
  };
  const size_t header = 4 + 4 * static_cast<size_t>(dimensions);
  if (bytes.size() < header) fail(cat(bytes.size(), " bytes"));
  const auto word = [&](size_t at) {
    int64_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<int64_t>(bytes[at + i]);
    return value;
  };
  constexpr int64_t kBytes = 0x08;  // type number of u8 in IDX files
  if (word(0) != (kBytes << 8 | dimensions)) fail(cat("magic number ", word(0)));
  IdxHeader result{.bytes = static_cast<int64_t>(header)};
  int64_t elements = 1;
  for (int d = 0; d < dimensions; ++d) {
    result.sizes.push_back(word(4 + 4 * static_cast<size_t>(d)));
    if (__builtin_mul_overflow(elements, result.sizes.back(), &elements)) fail("sizes overflow");
  }
  if (elements == 0 || elements != std::ssize(bytes) - result.bytes) {
    fail(
        cat("sizes of ", elements, " elements, with ", std::ssize(bytes) - result.bytes, " bytes"));
  }
  return result;
}

// Finds a file under its original name, or under the name that some programs give it when they
// unpack it.
std::optional<fs::path> idx_file(const fs::path& folder, const std::string& stem,
                                 const std::string& kind) {
  for (const char separator : {'-', '.'}) {
    const fs::path path = folder / cat(stem, std::string(1, separator), kind);
    if (is_there(path)) return path;
  }
  return {};
}

std::optional<Records> idx_records(const fs::path& folder, const std::string& split) {
  const auto images = idx_file(folder, split + "-images", "idx3-ubyte");
  const auto labels = idx_file(folder, split + "-labels", "idx1-ubyte");
  if (!images || !labels) return {};
  Records records{.pixels = map(*images), .labels = map(*labels)};
  const IdxHeader pixels = idx_header(*records.pixels, 3);
  const IdxHeader classes = idx_header(*records.labels, 1);
  if (pixels.sizes[0] != classes.sizes[0]) {
    throw DataError(cat(labels->string(), ": ", classes.sizes[0], " labels, but ", images->string(),
                        " has ", pixels.sizes[0], " images"));
  }
  records.count = pixels.sizes[0];
  records.rows = pixels.sizes[1], records.cols = pixels.sizes[2], records.planes = 1;
  records.pixels_begin = pixels.bytes, records.pixels_step = records.rows * records.cols;
  records.labels_begin = classes.bytes, records.labels_step = 1;
  return records;
}

}  // namespace

bool is_cifar(const std::string& path) {
  return is_there(fs::path(path) / "data_batch_1.bin") || is_there(fs::path(path) / "train.bin");
}

bool is_idx(const std::string& path) {
  return idx_file(path, "train-images", "idx3-ubyte").has_value();
}

ImageSplits open_cifar(const ImageDataOptions& options) {
  const fs::path folder = options.path;
  std::vector<Records> train, val;
  const bool is_100 = is_there(folder / "train.bin");
  if (is_100) {
    train.push_back(cifar_records(folder / "train.bin", 2));
    if (is_there(folder / "test.bin")) val.push_back(cifar_records(folder / "test.bin", 2));
    return make_splits(ImageFormat::kCifar, std::move(train), std::move(val),
                       names_in(folder / "fine_label_names.txt", 100), options);
  }
  for (int i = 1; is_there(folder / cat("data_batch_", i, ".bin")); ++i) {
    train.push_back(cifar_records(folder / cat("data_batch_", i, ".bin"), 1));
  }
  if (train.empty()) {
    throw MissingInputError(
        cat(options.path, ": no CIFAR files; expected data_batch_1.bin or train.bin"));
  }
  if (is_there(folder / "test_batch.bin"))
    val.push_back(cifar_records(folder / "test_batch.bin", 1));
  return make_splits(ImageFormat::kCifar, std::move(train), std::move(val),
                     names_in(folder / "batches.meta.txt", 10), options);
}

ImageSplits open_idx(const ImageDataOptions& options) {
  const auto train = idx_records(options.path, "train");
  if (!train) {
    throw MissingInputError(cat(options.path,
                                ": no train-images-idx3-ubyte and train-labels-idx1-ubyte; "
                                "unpack MNIST's .gz files"));
  }
  std::optional<Records> val;
  for (const char* split : {"val", "valid", "validation", "dev", "test", "t10k"}) {
    if (!val) val = idx_records(options.path, split);
  }
  int64_t classes = 0;
  for (int64_t i = 0; i < train->count; ++i) {
    const auto label = train->labels->bytes()[static_cast<size_t>(train->labels_begin + i)];
    classes = std::max(classes, std::to_integer<int64_t>(label) + 1);
  }
  return make_splits(ImageFormat::kIdx, {*train},
                     val ? std::vector<Records>{*val} : std::vector<Records>{},
                     names_in("", classes), options);
}

}  // namespace shale::image_internal
