#include "shale/runtime/io/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <type_traits>

#include "shale/base/dtype.h"
#include "shale/base/error.h"
#include "shale/runtime/io/convert_internal.h"

namespace shale {
namespace {

constexpr int64_t kAlignment = 32;
constexpr int64_t kBlock = 32;  // elements per block of Q8_0
constexpr int64_t kBlockBytes = 34;
constexpr size_t kMaxName = 63;
constexpr int64_t kElementsAtOnce = int64_t{1} << 20;

static_assert(std::endian::native == std::endian::little);

// Returns the number that GGUF gives to a value's type.
template <typename T>
constexpr uint32_t type_number() {
  if constexpr (std::is_same_v<T, uint32_t>) return 4;
  if constexpr (std::is_same_v<T, int32_t>) return 5;
  if constexpr (std::is_same_v<T, float>) return 6;
  if constexpr (std::is_same_v<T, bool>) return 7;
  if constexpr (std::is_same_v<T, std::string>) return 8;
  return 9;  // type number of an array
}

class Head {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T>
  void put(T value) {
    const auto at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  void put(const std::string& text) {
    put(uint64_t{text.size()});
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), begin, begin + text.size());
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    put(type_number<T>());
    put(uint64_t{values.size()});
    for (const T& value : values) put(value);
  }
  void put_value(const GgufValue& value) {
    std::visit(
        [this]<typename T>(const T& one) {
          put(type_number<T>());
          put(one);
        },
        value);
  }
  void align() { bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

int64_t count_of(const GgufTensor& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  return count;
}

int64_t bytes_of(GgufType type, int64_t elements) {
  switch (type) {
    case GgufType::kF32: return elements * 4;
    case GgufType::kF16:
    case GgufType::kBF16: return elements * 2;
    case GgufType::kQ8_0: return elements / kBlock * kBlockBytes;
  }
  throw InternalError(cat("gguf: no type ", static_cast<uint32_t>(type)));
}

void check(const GgufValues& values, const std::vector<GgufTensor>& tensors) {
  std::set<std::string> seen;
  for (const auto& [key, value] : values) {
    if (!seen.insert(key).second)
      throw InternalError(cat("gguf: the key ", key, " was given twice"));
  }
  seen.clear();
  for (const GgufTensor& tensor : tensors) {
    if (!seen.insert(tensor.name).second) {
      throw InternalError(cat("gguf: tensor ", tensor.name, " was given twice"));
    }
    if (tensor.name.size() > kMaxName) {
      throw ConfigError(cat("gguf: the name '", tensor.name, "' has ", tensor.name.size(),
                            " bytes, expected at most ", kMaxName));
    }
    if (tensor.type == GgufType::kQ8_0 && tensor.shape.back() % kBlock != 0) {
      throw ConfigError(cat("gguf: rows of ", tensor.name, " have ", tensor.shape.back(),
                            " elements, expected a multiple of ", kBlock, " for q8_0"));
    }
  }
}

void quantize_block(const float* x, std::byte* to, const std::string& name) {
  float largest = 0;
  for (int64_t i = 0; i < kBlock; ++i) {
    if (!std::isfinite(x[i])) {
      throw DataError(cat("gguf: ", name, " has the value ", x[i], ", which q8_0 cannot hold"));
    }
    largest = std::max(largest, std::abs(x[i]));
  }
  const float scale = largest / 127, inverse = scale != 0 ? 1 / scale : 0;
  const f16 stored(scale);
  std::memcpy(to, &stored, sizeof(stored));
  for (int64_t i = 0; i < kBlock; ++i) {
    to[sizeof(stored) + static_cast<size_t>(i)] =
        static_cast<std::byte>(static_cast<int8_t>(std::round(x[i] * inverse)));
  }
}

void encode(const GgufTensor& tensor, std::span<const float> from, std::byte* to) {
  const auto count = static_cast<int64_t>(from.size());
  if (tensor.type == GgufType::kQ8_0) {
    for (int64_t i = 0; i < count; i += kBlock) {
      quantize_block(from.data() + i, to + i / kBlock * kBlockBytes, tensor.name);
    }
    return;
  }
  const auto* source = reinterpret_cast<const std::byte*>(from.data());
  io_internal::convert({source, DType::kF32}, 0, {to, gguf_dtype(tensor.type).value()}, count);
}

}  // namespace

std::optional<DType> gguf_dtype(GgufType type) {
  switch (type) {
    case GgufType::kF32: return DType::kF32;
    case GgufType::kF16: return DType::kF16;
    case GgufType::kBF16: return DType::kBF16;
    case GgufType::kQ8_0: break;
  }
  return {};
}

GgufWriter::GgufWriter(const std::string& path, const GgufValues& values,
                       std::vector<GgufTensor> tensors)
    : tensors_(std::move(tensors)), file_(path) {
  check(values, tensors_);
  Head head;
  head.put(uint32_t{0x46554747});  // the bytes "GGUF"
  head.put(uint32_t{3});
  head.put(uint64_t{tensors_.size()});
  head.put(uint64_t{values.size()});
  for (const auto& [key, value] : values) {
    head.put(key);
    head.put_value(value);
  }
  int64_t offset = 0;
  for (const GgufTensor& tensor : tensors_) {
    head.put(tensor.name);
    head.put(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) {
      head.put(static_cast<uint64_t>(tensor.shape[i]));
    }
    head.put(static_cast<uint32_t>(tensor.type));
    head.put(static_cast<uint64_t>(offset));
    begins_.push_back(offset);
    offset += (bytes_of(tensor.type, count_of(tensor)) + kAlignment - 1) / kAlignment * kAlignment;
  }
  head.align();
  const auto data = static_cast<int64_t>(head.bytes().size());
  for (int64_t& begin : begins_) begin += data;
  file_bytes_ = data + offset;
  file_.reserve(file_bytes_);
  file_.write_at(0, head.bytes());
}

const GgufTensor& GgufWriter::current(size_t elements) const {
  if (current_ == tensors_.size()) {
    throw InternalError("gguf: all tensors are complete, expected no more elements");
  }
  const GgufTensor& tensor = tensors_[current_];
  const auto count = static_cast<int64_t>(elements);
  if (count > count_of(tensor) - written_ || count % tensor.shape.back() != 0) {
    throw InternalError(cat("gguf: ", count, " elements for ", tensor.name, ", expected at most ",
                            count_of(tensor) - written_, " and a multiple of ",
                            tensor.shape.back()));
  }
  return tensor;
}

void GgufWriter::write(std::span<const float> elements) {
  const GgufTensor& tensor = current(elements.size());
  const int64_t row = tensor.shape.back();
  const auto at_once = static_cast<size_t>(std::max<int64_t>(kElementsAtOnce / row, 1) * row);
  std::vector<std::byte> buffer;
  while (!elements.empty()) {
    const auto part = elements.first(std::min(at_once, elements.size()));
    const auto count = static_cast<int64_t>(part.size());
    buffer.resize(static_cast<size_t>(bytes_of(tensor.type, count)));
    encode(tensor, part, buffer.data());
    file_.write_at(begins_[current_] + bytes_of(tensor.type, written_), buffer);
    written_ += count;
    elements = elements.subspan(part.size());
  }
  if (written_ == count_of(tensor)) {
    ++current_;
    written_ = 0;
  }
}

void GgufWriter::commit() {
  if (current_ < tensors_.size()) {
    throw InternalError(
        cat("gguf: ", tensors_[current_].name, " is not complete; write all its elements first"));
  }
  file_.commit(file_bytes_);  // padding that was never written reads as zeros
}

}  // namespace shale
