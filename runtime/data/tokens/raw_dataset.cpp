#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/split.h"
#include "shale/runtime/data/tokens/dataset_internal.h"

namespace shale::data_internal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNumpyMagic = "\x93NUMPY";

// Those fields of a NumPy header (numpy/lib/format.py) that are needed to read tokens.
struct NumpyHeader {
  TokenWidth width = TokenWidth::k16;
  int64_t offset = 0;  // byte offset of the first token
  int64_t tokens = 0;
};

// Returns the text after "'key':" in the header's dictionary, up to the end of the dictionary.
std::string_view value_of(std::string_view dictionary, std::string_view key,
                          const std::string& path) {
  const size_t at = dictionary.find(cat("'", key, "':"));
  if (at == dictionary.npos) {
    throw DataError(cat(path, ": the NumPy header has no key '", key, "'"));
  }
  std::string_view value = dictionary.substr(at + key.size() + 3);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

TokenWidth width_of(std::string_view descr, const std::string& path) {
  for (const auto& [name, width] :
       {std::pair("'<u2'", TokenWidth::k16), std::pair("'<u4'", TokenWidth::k32),
        std::pair("'<i4'", TokenWidth::k32), std::pair("'|u1'", TokenWidth::k8)}) {
    if (descr.starts_with(name)) return width;
  }
  throw DataError(cat(path, ": elements of type ", excerpt(descr.substr(0, descr.find(','))),
                      ", expected '<u2', '<u4', '<i4' or '|u1'"));
}

// Parses the shape of a vector, such as "(123,)", and returns its length.
int64_t length_of(std::string_view shape, const std::string& path) {
  int64_t length = 0;
  const char* const end = shape.data() + shape.size();
  const auto [rest, error] = std::from_chars(shape.data() + 1, end, length);
  if (shape.starts_with('(') && error == std::errc() && length > 0 &&
      std::string_view(rest, static_cast<size_t>(end - rest)).starts_with(",)")) {
    return length;
  }
  throw DataError(cat(path, ": an array of shape ", excerpt(shape.substr(0, shape.find(')') + 1)),
                      ", expected a vector of tokens, (N,)"));
}

NumpyHeader parse_numpy_header(std::string_view file, const std::string& path) {
  // Bytes of the magic number with the version, of the length field in version 1, and of the length
  // field in later versions.
  constexpr size_t kFixed = 8, kShort = 2, kLong = 4;
  const bool is_short = file.size() > kFixed && file[6] == 1;
  const size_t begin = kFixed + (is_short ? kShort : kLong);
  uint32_t bytes = 0;
  if (file.size() >= begin) std::memcpy(&bytes, file.data() + kFixed, begin - kFixed);
  if (file.size() < begin || bytes > file.size() - begin) {
    throw DataError(cat(path, ": ", file.size(), " bytes, less than its NumPy header"));
  }
  const std::string_view dictionary = file.substr(begin, bytes);
  const NumpyHeader header{width_of(value_of(dictionary, "descr", path), path),
                           static_cast<int64_t>(begin + bytes),
                           length_of(value_of(dictionary, "shape", path), path)};
  const auto rest = static_cast<int64_t>(file.size()) - header.offset;
  const auto width = static_cast<int64_t>(header.width);
  if (header.offset % width != 0 || rest / width != header.tokens || rest % width != 0) {
    throw DataError(cat(path, ": the header says ", header.tokens, " tokens of ", width,
                        " bytes, but ", rest, " bytes follow it at byte ", header.offset));
  }
  return header;
}

// A token file, and the position of its tokens.
struct RawFile {
  MappedFile file;
  TokenWidth width;
  int64_t offset = 0;  // byte offset of the first token
  int64_t tokens = 0;
};

RawFile open_headerless(MappedFile file, TokenWidth width) {
  const std::string& path = file.path();
  const auto bytes = static_cast<int64_t>(file.bytes().size());
  const auto size = static_cast<int64_t>(width);
  if (bytes % size != 0) {
    throw DataError(cat(path, ": ", bytes, " bytes, expected ",
                        size == 2 ? "an even number" : cat("a multiple of ", size), ": tokens of ",
                        8 * size, " bits"));
  }
  uint32_t magic = 0;
  if (bytes >= 4) std::memcpy(&magic, file.bytes().data(), sizeof magic);
  if (is_llmc_magic(magic)) {
    throw DataError(
        cat(path, ": begins with llm.c's magic number, expected tokens without a header"));
  }
  return {.file = std::move(file), .width = width, .tokens = bytes / size};
}

// Opens a token file. If it has a NumPy header, that says the width of tokens.
RawFile open_raw_file(const std::string& path, const DataOptions& options) {
  MappedFile file = map_tokens(path, options.validate);
  if (file.text().starts_with(kNumpyMagic)) {
    const NumpyHeader header = parse_numpy_header(file.text(), path);
    file.check();
    if (options.width && *options.width != header.width) {
      throw DataError(cat(path, ": tokens of ", 8 * static_cast<int>(header.width),
                          " bits, expected ", 8 * static_cast<int>(*options.width), " bits"));
    }
    return {.file = std::move(file),
            .width = header.width,
            .offset = header.offset,
            .tokens = header.tokens};
  }
  if (!options.width) {
    throw ConfigError(cat(
        path, ": the file does not store the dtype of its tokens; use --data-format u16 or u32"));
  }
  return open_headerless(std::move(file), *options.width);
}

}  // namespace

DatasetSplits open_nanogpt(const DataSource& source, const DataOptions& options) {
  const TokenWidth width = options.width.value_or(TokenWidth::k16);
  BinData data{.files = make_files(options), .width = width};
  std::vector<std::string> files = source.files;
  if (source.is_folder) {
    // In a folder, only train.bin and files that their names mark for validation or test are token
    // files.
    const std::string train = (fs::path(source.path) / "train.bin").string();
    files = files_ending(source.path, ".bin", /*with_links=*/true);
    std::erase_if(files, [&](const std::string& file) {
      return use_of_name(source.name_of(file)) == FileUse::kTrain;
    });
    files.insert(files.begin(), train);
  }
  for (const auto& [path, is_validation] : divide_token_files(source, files, data.note)) {
    RawFile file = open_headerless(map_tokens(path, options.validate), width);
    data.add(std::move(file.file), file.offset, file.tokens, is_validation);
  }
  return make_splits(std::move(data), DataFormat::kNanogpt, options);
}

DatasetSplits open_raw(const DataSource& source, const DataOptions& options) {
  std::vector<std::string> files = source.files;
  if (source.is_folder) {
    for (const char* ending : {".bin", ".npy"}) {
      for (std::string& file : files_ending(source.path, ending)) files.push_back(std::move(file));
    }
    std::sort(files.begin(), files.end());
  }
  if (files.empty())
    throw MissingInputError(cat(source.path, ": no *.npy or *.bin in this folder"));
  BinData data{.files = make_files(options)};
  std::optional<TokenWidth> width;
  for (const auto& [path, is_validation] : divide_token_files(source, files, data.note)) {
    RawFile file = open_raw_file(path, options);
    if (width && *width != file.width) {
      throw DataError(cat(path, ": tokens of ", static_cast<int>(file.width), " bytes, but ",
                          files.front(), " has tokens of ", static_cast<int>(*width), " bytes"));
    }
    width = file.width;
    data.add(std::move(file.file), file.offset, file.tokens, is_validation);
  }
  data.width = *width;
  return make_splits(std::move(data), DataFormat::kRaw, options);
}

}  // namespace shale::data_internal
