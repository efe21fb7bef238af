#include "shale/runtime/io/safetensors_format.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"

namespace shale {
namespace {

// Element types sorted by alignment, smallest first, as in the reference implementation. Files
// store tensors in the reverse order.
constexpr std::array<SafetensorsDType, 22> kTypes = {{
    {"BOOL", 8, 0, {}},
    {"F4", 4, 1, {}},
    {"F6_E2M3", 6, 2, {}},
    {"F6_E3M2", 6, 3, {}},
    {"U8", 8, 4, DType::kU8},
    {"I8", 8, 5, {}},
    {"F8_E5M2", 8, 6, {}},
    {"F8_E4M3", 8, 7, {}},
    {"F8_E8M0", 8, 8, {}},
    {"F8_E4M3FNUZ", 8, 9, {}},
    {"F8_E5M2FNUZ", 8, 10, {}},
    {"I16", 16, 11, {}},
    {"U16", 16, 12, DType::kU16},
    {"F16", 16, 13, DType::kF16},
    {"BF16", 16, 14, DType::kBF16},
    {"I32", 32, 15, DType::kI32},
    {"U32", 32, 16, DType::kU32},
    {"F32", 32, 17, DType::kF32},
    {"C64", 64, 18, {}},
    {"F64", 64, 19, DType::kF64},
    {"I64", 64, 20, DType::kI64},
    {"U64", 64, 21, {}},
}};

constexpr std::string_view kMetadata = "__metadata__";

// Reads the JSON header. Accepts only {"__metadata__": {string: string}, name: {"dtype": string,
// "shape": [integers], "data_offsets": [integer, integer]}, ...}. Throws at the first limit that is
// exceeded, so that a header cannot exhaust memory.
class HeaderReader final : public JsonVisitor {
 public:
  explicit HeaderReader(std::string_view source) : source_(source) {}

  // entries whose `begin` is still relative to the data section
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;

  void value(Json&& scalar) override {
    if (scalar.is_string()) {
      string(scalar.text());
    } else if (scalar.is_integer() && scalar.int64().value_or(0) >= 0) {
      number(scalar);
    } else {
      unexpected(scalar.is_null()      ? "null"
                 : scalar.is_boolean() ? "a boolean"
                 : scalar.is_integer() ? "a negative number"
                                       : "a fraction");
    }
  }

  void key(std::string&& name) override {
    field_ = std::move(name);
    if (state_ == State::kTop) return begin_tensor();
    if (!fields_.insert(field_).second) fail(cat("'", excerpt(field_), "' appears twice"));
    if (state_ == State::kEntry && field_ != "dtype" && field_ != "shape" &&
        field_ != "data_offsets") {
      fail(cat("unknown key '", excerpt(field_), "'"));
    }
  }

  void start_object() override {
    fields_.clear();
    if (state_ == State::kBefore) {
      state_ = State::kTop;
    } else if (state_ == State::kTop && in_metadata_) {
      state_ = State::kMetadataEntry;
    } else if (state_ == State::kTop) {
      state_ = State::kEntry;
    } else {
      unexpected("an object");
    }
  }

  void end_object() override {
    if (state_ == State::kEntry) finish_entry();
    state_ = State::kTop;
  }

  void start_array() override {
    if (state_ != State::kEntry || field_ == "dtype") unexpected("a list");
    state_ = field_ == "shape" ? State::kShape : State::kOffsets;
  }

  void end_array() override { state_ = State::kEntry; }

 private:
  enum class State { kBefore, kTop, kMetadataEntry, kEntry, kShape, kOffsets };

  [[noreturn]] void fail(const std::string& problem) const {
    const std::string where = tensor_.empty() ? "" : cat("tensor '", excerpt(tensor_), "': ");
    throw DataError(cat(source_, ": ", where, problem));
  }
  [[noreturn]] void unexpected(const char* what) const {
    fail(cat("the header has ", what, " where it should not",
             field_.empty() ? "" : cat(", at '", excerpt(field_), "'")));
  }

  void number(const Json& number) {
    if (state_ != State::kShape && state_ != State::kOffsets) unexpected("a number");
    const std::optional<int64_t> value = number.int64();
    if (!value) fail(cat("the number ", number.dump(), " is too large"));
    const auto limit = state_ == State::kShape ? static_cast<size_t>(kMaxSafetensorsRank) : 2;
    std::vector<int64_t>& list = state_ == State::kShape ? entries.back().shape : offsets_;
    if (list.size() == limit) fail(cat("more than ", limit, " numbers in '", field_, "'"));
    list.push_back(*value);
  }

  void string(const std::string& text) {
    if (state_ == State::kMetadataEntry) {
      if (static_cast<int64_t>(metadata.size()) == kMaxSafetensorsMetadata) {
        fail(cat("more than ", kMaxSafetensorsMetadata, " entries of metadata"));
      }
      metadata[field_] = text;
    } else if (state_ == State::kEntry && field_ == "dtype") {
      entries.back().type = find_safetensors_dtype(text);
      if (entries.back().type == nullptr) fail(cat("unknown dtype '", excerpt(text), "'"));
    } else {
      unexpected("a string");
    }
  }

  void begin_tensor() {
    in_metadata_ = field_ == kMetadata;
    tensor_.clear();
    if (static_cast<int64_t>(field_.size()) > kMaxSafetensorsName) {
      fail(cat("a name of ", field_.size(), " bytes, expected at most ", kMaxSafetensorsName));
    }
    tensor_ = field_;
    if (!names_.insert(field_).second) fail("the name appears twice");
    if (in_metadata_) return;
    if (static_cast<int64_t>(entries.size()) == kMaxSafetensorsTensors) {
      fail(cat("more than ", kMaxSafetensorsTensors, " tensors"));
    }
    entries.emplace_back().name = field_;
    offsets_.clear();
  }

  void finish_entry() {
    SafetensorsEntry& entry = entries.back();
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(field)) fail(cat("no '", field, "'"));
    }
    if (offsets_.size() != 2) fail(cat(offsets_.size(), " data_offsets, expected 2"));
    if (offsets_[1] < offsets_[0]) {
      fail(cat("data_offsets end at ", offsets_[1], ", before they begin at ", offsets_[0]));
    }
    const std::optional<int64_t> want = safetensors_bytes(*entry.type, entry.shape);
    entry.begin = offsets_[0];
    entry.bytes = offsets_[1] - offsets_[0];
    if (!want) fail(cat(to_string(entry), " has an impossible size"));
    if (entry.bytes != *want) {
      fail(cat(entry.bytes, " bytes of data, expected ", *want, " for ", to_string(entry)));
    }
  }

  std::string_view source_;
  State state_ = State::kBefore;
  bool in_metadata_ = false;
  std::string tensor_;            // key of the top-level object being read
  std::string field_;             // last key that was read
  std::set<std::string> names_;   // keys of the top-level object so far
  std::set<std::string> fields_;  // keys of the nested object so far
  std::vector<int64_t> offsets_;
};

// Sorts entries by offset, checks that they fill the data section, and makes offsets absolute.
void place(SafetensorsHeader& header, int64_t file_bytes, std::string_view source) {
  std::sort(header.entries.begin(), header.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              // An empty tensor has the same begin as the next tensor, and comes first.
              return std::pair(a.begin, a.bytes) < std::pair(b.begin, b.bytes);
            });
  int64_t expected = 0;
  for (SafetensorsEntry& entry : header.entries) {
    if (entry.begin != expected) {
      throw DataError(cat(source, ": tensor '", excerpt(entry.name), "': data begins at ",
                          entry.begin, ", expected ", expected,
                          ", where the previous tensor ends"));
    }
    expected += entry.bytes;  // cannot overflow: begin + bytes was parsed as one number
  }
  if (expected != file_bytes - header.data_begin) {
    throw DataError(cat(source, ": ", file_bytes - header.data_begin,
                        " bytes follow the header, expected ", expected, " for its tensors"));
  }
  for (SafetensorsEntry& entry : header.entries) entry.begin += header.data_begin;
}

}  // namespace

const SafetensorsDType* find_safetensors_dtype(std::string_view name) {
  for (const SafetensorsDType& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

const SafetensorsDType& safetensors_dtype(DType dtype) {
  for (const SafetensorsDType& type : kTypes) {
    if (type.dtype == dtype) return type;
  }
  throw DTypeError(cat("safetensors: there is no element type for ", dtype_name(dtype)));
}

std::optional<int64_t> safetensors_bytes(const SafetensorsDType& type,
                                         std::span<const int64_t> shape) {
  int64_t bits = type.bits;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bits, size, &bits)) return std::nullopt;
  }
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

std::string to_string(const SafetensorsEntry& entry) {
  std::string text = cat(entry.type->name, "[");
  for (size_t i = 0; i < entry.shape.size(); ++i) text += cat(i > 0 ? "," : "", entry.shape[i]);
  return text + "]";
}

int64_t safetensors_data_begin(std::span<const std::byte> front, int64_t file_bytes,
                               std::string_view source) {
  uint64_t length = 0;
  if (front.size() < sizeof length) {
    throw DataError(cat(source, ": ", front.size(), " bytes, expected 8 for the header's length"));
  }
  std::memcpy(&length, front.data(), sizeof length);
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    throw DataError(cat(source, ": the header claims ", length, " bytes, expected at most ",
                        kMaxSafetensorsHeader));
  }
  const auto data_begin = static_cast<int64_t>(sizeof length + length);
  if (data_begin > file_bytes) {
    throw DataError(cat(source, ": the header claims ", length, " bytes, but the file has ",
                        file_bytes - 8, " after the first 8"));
  }
  return data_begin;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> front, int64_t file_bytes,
                                           std::string_view source) {
  const int64_t data_begin = safetensors_data_begin(front, file_bytes, source);
  if (static_cast<int64_t>(front.size()) < data_begin) {
    throw InternalError(
        cat(source, ": ", front.size(), " bytes given, expected the header's ", data_begin));
  }
  const std::string_view text(reinterpret_cast<const char*>(front.data()) + 8,
                              static_cast<size_t>(data_begin - 8));
  if (!text.starts_with('{')) throw DataError(cat(source, ": the header does not begin with '{'"));
  HeaderReader reader(source);
  visit_json(text, cat(source, ": the header"), reader);
  SafetensorsHeader header{std::move(reader.entries), std::move(reader.metadata), data_begin};
  place(header, file_bytes, source);
  return header;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           std::string_view source) {
  return parse_safetensors_header(file, static_cast<int64_t>(file.size()), source);
}

}  // namespace shale
