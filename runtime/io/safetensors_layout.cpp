#include "shale/runtime/io/safetensors_layout.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/runtime/io/safetensors_format.h"

namespace shale {
namespace {

std::string quoted_name(const std::string& name) try {
  return json_quote(name, BrokenUtf8::kRefused);
} catch (const DataError&) {
  throw InternalError(cat("safetensors: a tensor's name is not UTF-8: '", name, "'"));
}

// Returns indices in `tensors`, in the order of the tensors' data in the file.
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

// Returns the JSON text of a tensor's entry in the header.
std::string describe(const SafetensorsSpec& spec, int64_t begin) {
  std::string text = cat(quoted_name(spec.name), ":{\"dtype\":\"",
                         safetensors_dtype(spec.dtype).name, "\",\"shape\":[");
  for (size_t i = 0; i < spec.shape.size(); ++i) text += cat(i > 0 ? "," : "", spec.shape[i]);
  return text + cat("],\"data_offsets\":[", begin, ",", begin + spec.bytes(), "]}");
}

std::string describe(const std::map<std::string, std::string>& metadata) {
  std::string text = "\"__metadata__\":{";
  for (const auto& [key, value] : metadata) {
    if (!text.ends_with('{')) text += ',';
    text += json_quote(key) + ":" + json_quote(value);
  }
  return text + "}";
}

}  // namespace

int64_t SafetensorsSpec::bytes() const {
  const std::optional<int64_t> size = safetensors_bytes(safetensors_dtype(dtype), shape);
  if (!size) {
    throw InternalError(cat("safetensors: tensor '", name,
                            "' has an impossible shape, expected sizes of at least 0 and a whole "
                            "number of bytes below 2^60"));
  }
  return *size;
}

void check_safetensors_specs(const std::vector<SafetensorsSpec>& tensors) {
  std::set<std::string_view> names;
  for (const SafetensorsSpec& spec : tensors) {
    const auto fail = [&](const std::string& problem) {
      throw InternalError(cat("safetensors: tensor '", spec.name, "' ", problem));
    };
    if (!names.insert(spec.name).second) fail("is declared twice");
    if (spec.name == "__metadata__") fail("has the reserved name of the metadata");
    if (static_cast<int64_t>(spec.name.size()) > kMaxSafetensorsName) {
      fail(cat("has a name of ", spec.name.size(), " bytes, expected at most ",
               kMaxSafetensorsName));
    }
    if (static_cast<int64_t>(spec.shape.size()) > kMaxSafetensorsRank) {
      fail(cat("has ", spec.shape.size(), " dimensions, expected at most ", kMaxSafetensorsRank));
    }
  }
  if (static_cast<int64_t>(tensors.size()) > kMaxSafetensorsTensors) {
    throw InternalError(cat("safetensors: ", tensors.size(), " tensors, expected at most ",
                            kMaxSafetensorsTensors));
  }
}

SafetensorsLayout lay_out_safetensors(const std::vector<SafetensorsSpec>& tensors,
                                      const std::map<std::string, std::string>& metadata) {
  check_safetensors_specs(tensors);
  SafetensorsLayout layout{.order = file_order(tensors)};
  layout.begins.resize(tensors.size());
  std::string header = "{" + describe(metadata);
  int64_t data_bytes = 0;
  for (const size_t i : layout.order) {
    layout.begins[i] = data_bytes;
    if (__builtin_add_overflow(data_bytes, tensors[i].bytes(), &data_bytes)) {
      throw InternalError("safetensors: more than 2^63 bytes");
    }
    header += "," + describe(tensors[i], layout.begins[i]);
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');  // pads the header with spaces to align the data
  if (static_cast<int64_t>(header.size()) > kMaxSafetensorsHeader) {
    throw InternalError(cat("safetensors: the header has ", header.size(),
                            " bytes, expected at most ", kMaxSafetensorsHeader));
  }
  const uint64_t length = header.size();
  layout.front.resize(sizeof length);
  std::memcpy(layout.front.data(), &length, sizeof length);
  layout.front += header;
  const auto data_begin = static_cast<int64_t>(layout.front.size());
  for (int64_t& begin : layout.begins) begin += data_begin;
  layout.file_bytes = data_begin + data_bytes;
  return layout;
}

}  // namespace shale
