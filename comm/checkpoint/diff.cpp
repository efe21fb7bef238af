#include "shale/comm/checkpoint/diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "shale/base/error.h"

namespace shale {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;

template <typename T>
double to_f64(T value) {
  if constexpr (std::is_class_v<T>) {
    return to_f32(value);
  } else {
    return static_cast<double>(value);
  }
}

//  - b|. NaN if exactly one of the two is NaN; 0 if both are.
template <typename T>
double distance(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    // Subtracts integers, because a double cannot distinguish large adjacent integers.
    const auto high = static_cast<uint64_t>(std::max(a, b));
    return static_cast<double>(high - static_cast<uint64_t>(std::min(a, b)));
  } else {
    const double x = to_f64(a), y = to_f64(b);
    if (std::isnan(x) && std::isnan(y)) return 0;
    return x == y ? 0 : std::abs(x - y);  // equal infinities differ by 0, not by NaN
  }
}

template <typename T>
void compare(const std::byte* first, const std::byte* second, int64_t count,
             TensorDifference& difference) {
  for (int64_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, first + i * static_cast<int64_t>(sizeof(T)), sizeof a);
    std::memcpy(&b, second + i * static_cast<int64_t>(sizeof(T)), sizeof b);
    if (std::memcmp(&a, &b, sizeof a) == 0) continue;
    ++difference.elements;
    const double gap = distance(a, b);
    if (std::isnan(gap) || gap > difference.max_abs) difference.max_abs = gap;
  }
}

void compare(DType dtype, const std::byte* first, const std::byte* second, int64_t count,
             TensorDifference& difference) {
  switch (dtype) {
    case DType::kF32: return compare<float>(first, second, count, difference);
    case DType::kBF16: return compare<bf16>(first, second, count, difference);
    case DType::kF16: return compare<f16>(first, second, count, difference);
    case DType::kF64: return compare<double>(first, second, count, difference);
    case DType::kI32: return compare<int32_t>(first, second, count, difference);
    case DType::kI64: return compare<int64_t>(first, second, count, difference);
    case DType::kU8: return compare<uint8_t>(first, second, count, difference);
    case DType::kU16: return compare<uint16_t>(first, second, count, difference);
    case DType::kU32: return compare<uint32_t>(first, second, count, difference);
  }
}

TensorDifference diff_values(CheckpointReader& first, CheckpointReader& second,
                             const std::string& name, const CheckpointTensor& tensor) {
  TensorDifference difference{.name = name};
  const int64_t size = dtype_size(tensor.dtype);
  std::vector<std::byte> a, b;
  for (int64_t done = 0; done < tensor.numel();) {
    const int64_t count = std::min(kPieceBytes / size, tensor.numel() - done);
    a.resize(static_cast<size_t>(count * size));
    b.resize(a.size());
    first.read(name, done, a);
    second.read(name, done, b);
    if (std::memcmp(a.data(), b.data(), a.size()) != 0) {
      compare(tensor.dtype, a.data(), b.data(), count, difference);
    }
    done += count;
  }
  return difference;
}

}  // namespace

std::vector<TensorDifference> diff_checkpoints(CheckpointReader& first, CheckpointReader& second) {
  using Kind = TensorDifference::Kind;
  std::vector<TensorDifference> differences;
  for (const auto& [name, tensor] : first.manifest().tensors) {
    const CheckpointTensor* other = second.find(name);
    if (other == nullptr) {
      differences.push_back({.name = name, .kind = Kind::kOnlyInFirst});
    } else if (other->dtype != tensor.dtype || other->shape != tensor.shape) {
      differences.push_back({.name = name, .kind = Kind::kForm});
    } else if (TensorDifference found = diff_values(first, second, name, tensor);
               found.elements > 0) {
      differences.push_back(std::move(found));
    }
  }
  for (const auto& [name, tensor] : second.manifest().tensors) {
    if (first.find(name) == nullptr) {
      differences.push_back({.name = name, .kind = Kind::kOnlyInSecond});
    }
  }
  std::sort(differences.begin(), differences.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return differences;
}

}  // namespace shale
