#include "shale/models/weights/hf_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale::models {

namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr size_t kMaxListed = 10;

std::string_view without_prefix(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

bool is_readable(const StoredTensor& tensor) {
  const auto dtype = tensor.type->dtype;
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// Returns the number of elements of a row, i.e. of one index of the first dimension.
int64_t row_elements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (size_t d = 1; d < shape.size(); ++d) count *= shape[d];
  return count;
}

std::string text_of(const std::vector<int64_t>& shape) {
  return to_string(Shape(shape));
}

// Describes how the stored tensor differs from the tensor that the model needs; empty if they
// match.
std::string mismatch(const HfTensor& want, const StoredTensor& found) {
  if (found.shape == want.file_shape() && is_readable(found)) return "";
  return cat(excerpt(found.name), " is ", found.description(), ", expected F32, BF16 or F16 ",
             text_of(want.file_shape()));
}

[[noreturn]] void fail_list(const std::string& path, const HfLayout& layout,
                            const std::vector<std::string>& problems) {
  std::string text = cat(path, ": the weights do not fit ", layout.asked_by, ": ");
  for (size_t i = 0; i < std::min(problems.size(), kMaxListed); ++i) {
    text += cat(i > 0 ? "; " : "", problems[i]);
  }
  if (problems.size() > kMaxListed) text += cat("; and ", problems.size() - kMaxListed, " more");
  throw DataError(text);
}

}  // namespace

std::vector<int64_t> HfTensor::file_shape() const {
  if (stacked) return {shape.begin() + 1, shape.end()};
  return transposed ? std::vector<int64_t>{shape[1], shape[0]} : shape;
}

std::vector<std::string> HfTensor::file_names() const {
  return parts.empty() ? std::vector<std::string>{name} : parts;
}

std::string HfLayout::file_name(std::string_view parameter) const {
  return parameter == kHead ? std::string(parameter) : cat(prefix, parameter);
}

bool HfLayout::may_pad(std::string_view parameter) const {
  return parameter == embedding || parameter == kHead;
}

HfWeights::HfWeights(const std::string& path, StoredTensors files,
                     const std::vector<HfTensor>& tensors, HfLayout layout)
    : files_(std::move(files)), layout_(std::move(layout)) {
  for (const HfTensor& tensor : tensors) {
    const std::vector<std::string> names = tensor.file_names();
    Item& item = items_.emplace(tensor.name, Item{tensor, {}}).first->second;
    item.files.resize(names.size());
    for (size_t i = 0; i < names.size(); ++i) parts_.emplace(names[i], Part{&item, i});
  }
  const StoredTensor* head = nullptr;
  std::vector<std::string> problems;
  for (const auto& [full_name, file] : files_.tensors()) {
    const std::string_view name = without_prefix(full_name, layout_.prefix);
    if (layout_.is_buffer != nullptr && layout_.is_buffer(name)) continue;
    const auto it = parts_.find(name);
    if (it == parts_.end() && name == layout_.head && !layout_.embedding.empty()) {
      head = &file;
      continue;
    }
    if (it == parts_.end()) {
      problems.push_back(
          cat(excerpt(full_name), " is ", file.description(), ", unknown in this model"));
      continue;
    }
    const StoredTensor*& place = it->second.item->files[it->second.index];
    if (place != nullptr) {
      problems.push_back(cat(name, " occurs with and without the prefix '", layout_.prefix, "'"));
    } else {
      place = &file;
      const std::string problem = mismatch(it->second.item->tensor, file);
      if (!problem.empty()) problems.push_back(problem);
    }
  }
  for (const auto& [name, part] : parts_) {
    const HfTensor& tensor = part.item->tensor;
    if (part.item->files[part.index] == nullptr && !tensor.zero_if_missing) {
      problems.push_back(cat(name, " is missing, expected ", text_of(tensor.file_shape())));
    }
  }
  if (!problems.empty()) fail_list(path, layout_, problems);
  if (head != nullptr) check_head(*head);
}

void HfWeights::check_head(const StoredTensor& head) const {
  const Item& item = items_.find(layout_.embedding)->second;
  if (const std::string problem = mismatch(item.tensor, head); !problem.empty()) {
    throw DataError(cat(head.path(), ": ", problem));
  }
  // Converts row by row via f32, because the element types may differ.
  const int64_t rows = item.tensor.shape[0];
  const int64_t cols = item.tensor.shape[1];
  const StoredTensor& file = *item.files.front();
  std::vector<float> head_row(static_cast<size_t>(cols));
  std::vector<float> row(static_cast<size_t>(cols));
  for (int64_t r = 0; r < rows; ++r) {
    read_box(head, {r, 0}, {1, cols}, {head_row.data(), DType::kF32, {cols, 1}});
    read_box(file, {r, 0}, {1, cols}, {row.data(), DType::kF32, {cols, 1}});
    if (std::memcmp(head_row.data(), row.data(), row.size() * sizeof(float)) != 0) {
      throw DataError(cat(head.path(), ": ", head.name, " differs from ", file.name, " in row ", r,
                          "; expected equal tensors, because the model uses one for both"));
    }
  }
}

// Reads rows that exist in the file.
void HfWeights::read_rows(const Item& item, int64_t first_row, int64_t rows,
                          const View& dst) const {
  const std::vector<int64_t>& shape = item.tensor.shape;
  const int64_t cols = row_elements(shape);
  if (item.tensor.transposed) {
    return read_box(*item.files.front(), {0, first_row}, {cols, rows},
                    {dst.data, dst.dtype, {1, cols}});
  }
  if (!item.tensor.stacked) {
    std::vector<int64_t> begin(shape.size(), 0), sizes = shape;
    begin[0] = first_row, sizes[0] = rows;
    return read_box(*item.files.front(), begin, sizes, {dst.data, dst.dtype, dense_strides(shape)});
  }
  const std::vector<int64_t> part = item.tensor.file_shape();
  for (int64_t row = 0; row < rows; ++row) {
    void* const to = static_cast<std::byte*>(dst.data) + row * cols * dtype_size(dst.dtype);
    read_box(*item.files[static_cast<size_t>(first_row + row)],
             std::vector<int64_t>(part.size(), 0), part, {to, dst.dtype, dense_strides(part)});
  }
}

// Reads the whole heads that contain these rows, in the order of the file. Then copies each row to
// its position in Shale's order.
void HfWeights::read_paired(const Item& item, int64_t first_row, int64_t rows,
                            const View& dst) const {
  const int64_t size = item.tensor.shape[0] / item.tensor.paired_heads;  // rows of a head
  const int64_t row_bytes = row_elements(item.tensor.shape) * dtype_size(dst.dtype);
  const int64_t first = first_row / size * size;
  const int64_t end = (first_row + rows + size - 1) / size * size;
  std::vector<std::byte> heads(static_cast<size_t>((end - first) * row_bytes));
  read_rows(item, first, end - first, make_view(heads.data(), dst.dtype, dst.shape));
  for (int64_t row = first_row; row < first_row + rows; ++row) {
    const int64_t i = row % size;
    const int64_t from = row - i + i % (size / 2) * 2 + i / (size / 2);
    std::memcpy(static_cast<std::byte*>(dst.data) + (row - first_row) * row_bytes,
                heads.data() + (from - first) * row_bytes, static_cast<size_t>(row_bytes));
  }
}

void HfWeights::read(std::string_view name, const View& dst, int64_t first_row) const {
  const auto it = items_.find(name);
  if (it == items_.end()) throw InternalError(cat("the model has no parameter '", name, "'"));
  const Item& item = it->second;
  const std::vector<int64_t>& shape = item.tensor.shape;
  const int64_t total_rows = shape[0];
  const int64_t cols = row_elements(shape);
  const bool fits = static_cast<size_t>(dst.ndim()) == shape.size() &&
                    std::equal(shape.begin() + 1, shape.end(), dst.shape.begin() + 1);
  if (!fits || !dst.contiguous()) {
    throw ShapeError(
        cat("read of '", name, "' into ", dst, ", expected dense rows of ", text_of(shape)));
  }
  const int64_t rows = dst.size(0);
  if (first_row < 0 || (!layout_.may_pad(name) && rows > total_rows - first_row)) {
    throw ShapeError(cat("read of '", name, "': rows ", first_row, " to ", first_row + rows,
                         ", expected a range in [0, ", total_rows, "]"));
  }
  const int64_t filled = std::clamp(total_rows - first_row, int64_t{0}, rows);
  // Bits of 0 represent the number 0 in all three types.
  const int64_t row_bytes = cols * dtype_size(dst.dtype);
  if (item.files.front() == nullptr) {
    std::memset(dst.data, 0, static_cast<size_t>(rows * row_bytes));
    return;
  }
  if (filled > 0 && item.tensor.paired_heads > 0) {
    read_paired(item, first_row, filled, dst);
  } else if (filled > 0) {
    read_rows(item, first_row, filled, dst);
  }
  if (rows > filled) {
    std::memset(static_cast<std::byte*>(dst.data) + filled * row_bytes, 0,
                static_cast<size_t>((rows - filled) * row_bytes));
  }
}

}  // namespace shale::models
