#include <cstring>
#include <filesystem>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/data/tokens/dataset_internal.h"

namespace shale::data_internal {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);

// Megatron-LM's index format (megatron/core/datasets/indexed_dataset.py): magic, u64 version, u8
// dtype, u64 number of sequences, u64 number of documents + 1; then for each sequence the number of
// tokens (i32) and the offset in the .bin (i64); then the first sequence of each document.
constexpr int64_t kHeaderBytes = 34;
constexpr uint64_t kVersion = 1;

template <typename T>
T value_at(const MappedFile& index, int64_t offset) {
  T value;
  std::memcpy(&value, index.bytes().data() + offset, sizeof value);  // values are unaligned
  return value;
}

TokenWidth width_of(uint8_t code, const std::string& path) {
  switch (code) {
    case 1: return TokenWidth::k8;
    case 4: return TokenWidth::k32;
    case 8: return TokenWidth::k16;
    default:
      throw DataError(cat(path, ": tokens of type ", static_cast<int>(code),
                          ", expected 1 (u8), 4 (i32) or 8 (u16)"));
  }
}

struct Index {
  MappedFile file;
  TokenWidth width = TokenWidth::k16;
  int64_t sequences = 0;

  int64_t tokens(int64_t sequence) const {
    return value_at<int32_t>(file, kHeaderBytes + 4 * sequence);
  }
  int64_t offset(int64_t sequence) const {
    return value_at<int64_t>(file, kHeaderBytes + 4 * sequences + 8 * sequence);
  }
};

Index read_index(const std::string& path) {
  Index index{.file = MappedFile(path)};
  const auto bytes = static_cast<int64_t>(index.file.bytes().size());
  if (bytes < kHeaderBytes || !index.file.text().starts_with(kMagic)) {
    throw DataError(cat(path, ": not an index file of Megatron-LM"));
  }
  if (const auto version = value_at<uint64_t>(index.file, 9); version != kVersion) {
    throw DataError(cat(path, ": version ", version, ", expected ", kVersion));
  }
  index.width = width_of(value_at<uint8_t>(index.file, 17), path);
  const auto sequences = value_at<uint64_t>(index.file, 18);
  const auto documents = value_at<uint64_t>(index.file, 26);
  const auto room = static_cast<uint64_t>(bytes - kHeaderBytes);
  if (sequences == 0 || sequences > room / 12 || documents > (room - 12 * sequences) / 8) {
    throw DataError(cat(path, ": ", sequences, " sequences and ", documents,
                        " documents do not fit into its ", bytes,
                        " bytes; expected at least one sequence, and room for all"));
  }
  index.sequences = static_cast<int64_t>(sequences);
  return index;
}

// Checks that sequences are contiguous and fill the .bin file. all: checks every sequence; false:
// only the first and the last one.
void check_sequences(const Index& index, int64_t bin_bytes, bool all, const OnReading& on_reading) {
  const auto fail = [&](int64_t sequence, int64_t want) {
    throw DataError(cat(index.file.path(), ": sequence ", sequence, " begins at byte ",
                        index.offset(sequence), " of the .bin, expected ", want,
                        ", where the one before it ends"));
  };
  int64_t end = 0;
  for (int64_t i = 0; all && i < index.sequences; ++i) {
    if (on_reading && i % (int64_t{1} << 20) == 0) on_reading(index.file.path());
    if (index.offset(i) != end || index.tokens(i) < 0) fail(i, end);
    end += index.tokens(i) * static_cast<int>(index.width);
  }
  const int64_t last = index.sequences - 1;
  if (index.offset(0) != 0) fail(0, 0);
  // The sum cannot overflow for any file, because token counts have 32 bits.
  const int64_t bytes = index.tokens(last) * static_cast<int>(index.width);
  if (index.tokens(last) < 0 || index.offset(last) != bin_bytes - bytes)
    fail(last, bin_bytes - bytes);
  index.file.check();
}

std::string index_path(const std::string& bin) {
  return std::filesystem::path(bin).replace_extension(".idx").string();
}

}  // namespace

std::optional<std::string> megatron_index(const std::string& bin_path) {
  uint32_t magic = 0;
  std::memcpy(&magic, kMagic.data(), sizeof magic);
  const std::string path = index_path(bin_path);
  if (path == bin_path || file_magic(path) != magic) return {};
  return path;
}

DatasetSplits open_megatron(const DataSource& source, const DataOptions& options) {
  const std::vector<std::string> files =
      source.is_folder ? files_ending(source.path, ".bin") : source.files;
  if (files.empty()) throw MissingInputError(cat(source.path, ": no *.bin in this folder"));
  BinData data{.files = make_files(options)};
  std::optional<TokenWidth> width;
  for (const auto& [path, is_validation] : divide_token_files(source, files, data.note)) {
    const Index index = read_index(index_path(path));
    if (width && *width != index.width) {
      throw DataError(cat(path, ": tokens of ", static_cast<int>(index.width), " bytes, but ",
                          files.front(), " has tokens of ", static_cast<int>(*width), " bytes"));
    }
    width = index.width;
    MappedFile file = map_tokens(path, options.validate);
    const auto bytes = static_cast<int64_t>(file.bytes().size());
    check_sequences(index, bytes, options.validate, options.on_reading);
    data.add(std::move(file), 0, bytes / static_cast<int>(index.width), is_validation);
  }
  data.width = *width;
  return make_splits(std::move(data), DataFormat::kMegatron, options);
}

}  // namespace shale::data_internal
