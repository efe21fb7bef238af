#include "runtime/io/safetensors_writer.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/io/safetensors_format.h"
#include "runtime/io/safetensors_index.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

// A JSON string. `is_strict`: InternalError for what is not UTF-8, else it is replaced.
std::string quoted(const std::string& text, bool is_strict) {
  const auto handler = is_strict ? nlohmann::json::error_handler_t::strict
                                 : nlohmann::json::error_handler_t::replace;
  try {
    return nlohmann::json(text).dump(-1, ' ', false, handler);
  } catch (const nlohmann::json::exception&) {
    throw InternalError(cat("safetensors: a tensor's name is not UTF-8: '", text, "'"));
  }
}

void check_specs(const std::vector<SafetensorsSpec>& tensors) {
  std::set<std::string_view> names;
  for (const SafetensorsSpec& spec : tensors) {
    const auto fail = [&](const std::string& problem) {
      throw InternalError(cat("safetensors: tensor '", spec.name, "' ", problem));
    };
    if (!names.insert(spec.name).second) fail("is declared twice");
    if (spec.name == "__metadata__") fail("has the name of the metadata");
    if (static_cast<int64_t>(spec.name.size()) > kMaxSafetensorsName) fail("has too long a name");
    if (static_cast<int64_t>(spec.shape.size()) > kMaxSafetensorsRank) {
      fail(cat("has ", spec.shape.size(), " dimensions, want at most ", kMaxSafetensorsRank));
    }
  }
  if (static_cast<int64_t>(tensors.size()) > kMaxSafetensorsTensors) {
    throw InternalError(
        cat("safetensors: ", tensors.size(), " tensors, want at most ", kMaxSafetensorsTensors));
  }
}

// Places in `tensors`, in the order of the file.
std::vector<size_t> file_order(const std::vector<SafetensorsSpec>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&tensors](size_t a, size_t b) {
    const int order_a = safetensors_dtype(tensors[a].dtype).order;
    const int order_b = safetensors_dtype(tensors[b].dtype).order;
    return order_a != order_b ? order_a > order_b : tensors[a].name < tensors[b].name;
  });
  return order;
}

// One tensor's part of the header.
std::string describe(const SafetensorsSpec& spec, int64_t begin) {
  std::string text = cat(quoted(spec.name, /*is_strict=*/true), ":{\"dtype\":\"",
                         safetensors_dtype(spec.dtype).name, "\",\"shape\":[");
  for (size_t i = 0; i < spec.shape.size(); ++i) text += cat(i > 0 ? "," : "", spec.shape[i]);
  return text + cat("],\"data_offsets\":[", begin, ",", begin + spec.bytes(), "]}");
}

std::string describe(const std::map<std::string, std::string>& metadata) {
  std::string text = "\"__metadata__\":{";
  for (const auto& [key, value] : metadata) {
    if (!text.ends_with('{')) text += ',';
    text += quoted(key, /*is_strict=*/false) + ":" + quoted(value, /*is_strict=*/false);
  }
  return text + "}";
}

// Header length and header. Fills `begins` relative to the data, and returns them with the file's
// front part.
std::string make_front(const std::vector<SafetensorsSpec>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       std::vector<int64_t>& begins, int64_t& data_bytes) {
  std::string header = "{" + describe(metadata);
  begins.resize(tensors.size());
  data_bytes = 0;
  for (const size_t i : file_order(tensors)) {
    begins[i] = data_bytes;
    if (__builtin_add_overflow(data_bytes, tensors[i].bytes(), &data_bytes)) {
      throw InternalError("safetensors: more than 2^63 bytes");
    }
    header += "," + describe(tensors[i], begins[i]);
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');  // so that the data is aligned
  if (static_cast<int64_t>(header.size()) > kMaxSafetensorsHeader) {
    throw InternalError(cat("safetensors: the header has ", header.size(), " bytes, want at most ",
                            kMaxSafetensorsHeader));
  }
  const uint64_t length = header.size();
  std::string front(sizeof length, '\0');
  std::memcpy(front.data(), &length, sizeof length);
  return front + header;
}

}  // namespace

int64_t SafetensorsSpec::bytes() const {
  const std::optional<int64_t> size = safetensors_bytes(safetensors_dtype(dtype), shape);
  if (!size) throw InternalError(cat("safetensors: tensor '", name, "' has no possible size"));
  return *size;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsSpec> tensors,
                                     std::map<std::string, std::string> metadata)
    : tensors_(std::move(tensors)), file_(path) {
  check_specs(tensors_);
  metadata.emplace("format", "pt");
  int64_t data_bytes = 0;
  const std::string front = make_front(tensors_, metadata, begins_, data_bytes);
  const auto data_begin = static_cast<int64_t>(front.size());
  for (int64_t& begin : begins_) begin += data_begin;
  file_bytes_ = data_begin + data_bytes;
  file_.reserve(file_bytes_);
  file_.write_at(0, std::as_bytes(std::span(front)));
  skip_complete();
}

const SafetensorsSpec* SafetensorsWriter::current() const {
  return current_ < tensors_.size() ? &tensors_[current_] : nullptr;
}

void SafetensorsWriter::skip_complete() {
  while (current() != nullptr && written_ == current()->bytes()) {
    ++current_;
    written_ = 0;
  }
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const int64_t left = current() == nullptr ? 0 : current()->bytes() - written_;
  if (static_cast<int64_t>(bytes.size()) > left) {
    throw InternalError(cat(file_.path(), ": ", bytes.size(), " bytes for tensor '",
                            current() == nullptr ? "(none)" : current()->name, "', which has ",
                            left, " left"));
  }
  file_.write_at(begins_[current_] + written_, bytes);
  written_ += static_cast<int64_t>(bytes.size());
  skip_complete();
}

void SafetensorsWriter::write(const View& tensor) {
  if (tensor.numel() == 0) return;  // empty ones are complete from the start
  const SafetensorsSpec* spec = current();
  const auto fail = [&](const std::string& problem) {
    throw InternalError(cat(file_.path(), ": ", tensor, " given for tensor '",
                            spec == nullptr ? "(none)" : spec->name, "'", problem));
  };
  if (spec == nullptr) fail(", want nothing more");
  const bool same_shape =
      std::equal(tensor.shape.begin(), tensor.shape.end(), spec->shape.begin(), spec->shape.end());
  if (tensor.dtype != spec->dtype || !same_shape) fail(", which was declared otherwise");
  if (!tensor.contiguous()) fail(", want it dense");
  if (written_ != 0) fail(cat(", of which ", written_, " bytes are written already"));
  write(std::span(static_cast<const std::byte*>(tensor.data), static_cast<size_t>(tensor.bytes())));
}

void SafetensorsWriter::commit() {
  if (current() != nullptr) {
    throw InternalError(cat(file_.path(), ": tensor '", current()->name, "' has ", written_,
                            " of its ", current()->bytes(), " bytes"));
  }
  file_.commit(file_bytes_);
}

namespace {

std::vector<std::vector<SafetensorsSpec>> make_shards(std::vector<SafetensorsSpec> tensors,
                                                      int64_t max_bytes) {
  std::vector<std::vector<SafetensorsSpec>> shards(1);
  int64_t bytes = 0;
  for (SafetensorsSpec& spec : tensors) {
    const int64_t more = spec.bytes();
    if (!shards.back().empty() && more > max_bytes - bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += more;
    shards.back().push_back(std::move(spec));
  }
  return shards;
}

std::string make_index(const std::vector<std::vector<SafetensorsSpec>>& shards) {
  SafetensorsWeightMap weight_map;
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const SafetensorsSpec& spec : shards[i]) {
      weight_map[spec.name] = safetensors_file_name(i, shards.size());
      total += spec.bytes();
    }
  }
  return make_safetensors_index(weight_map, total);
}

void remove_stale(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) {
    throw DiskError(cat(path.string(), ": out of date, but cannot be removed: ", error.message()));
  }
}

}  // namespace

SafetensorsFolderWriter::SafetensorsFolderWriter(std::string folder,
                                                 std::vector<SafetensorsSpec> tensors,
                                                 const SafetensorsFolderOptions& options)
    : folder_(std::move(folder)) {
  check_specs(tensors);  // names must differ across files too
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw DiskError(cat(folder_, ": cannot be made: ", error.message()));
  auto shards = make_shards(std::move(tensors), options.max_shard_bytes);
  if (shards.size() > 1) index_ = make_index(shards);
  // All at once: if the disk has no room for all, it shows before anything is written.
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string path = (fs::path(folder_) / safetensors_file_name(i, shards.size())).string();
    writers_.emplace_back(path, std::move(shards[i]), options.metadata);
  }
}

SafetensorsWriter& SafetensorsFolderWriter::current_writer() {
  while (current_ + 1 < writers_.size() && writers_[current_].current() == nullptr) ++current_;
  return writers_[current_];
}

void SafetensorsFolderWriter::write(std::span<const std::byte> bytes) {
  current_writer().write(bytes);
}

void SafetensorsFolderWriter::write(const View& tensor) {
  current_writer().write(tensor);
}

const SafetensorsSpec* SafetensorsFolderWriter::current() const {
  for (size_t i = current_; i < writers_.size(); ++i) {
    if (writers_[i].current() != nullptr) return writers_[i].current();
  }
  return nullptr;
}

void SafetensorsFolderWriter::commit() {
  if (current() != nullptr) {
    throw InternalError(cat(folder_, ": tensor '", current()->name, "' is not complete"));
  }
  for (SafetensorsWriter& writer : writers_) writer.commit();
  const fs::path index = fs::path(folder_) / kSafetensorsIndexFile;
  if (index_.empty()) {
    remove_stale(index);
  } else {
    write_file_atomically(index.string(), index_);
    remove_stale(fs::path(folder_) / kSafetensorsSingleFile);
  }
}

}  // namespace shale
