#include "shale/models/weights/hf_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/io/convert_internal.h"

namespace shale::models {

using namespace io_internal;

namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr size_t kMaxListed = 10;

std::string_view without_prefix(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

bool is_readable(const SafetensorsEntry& entry) {
  const auto dtype = entry.type->dtype;
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// Returns the number of elements in one row, an index of the first dimension.
int64_t row_elements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (size_t d = 1; d < shape.size(); ++d) count *= shape[d];
  return count;
}

std::string text_of(const std::vector<int64_t>& shape) {
  return to_string(Shape(shape));
}

Source source_of(const SafetensorsFolder::Tensor& tensor) {
  return {tensor.bytes().data(), *tensor.entry->type->dtype};
}

// Describes how the entry differs from the tensor that the model needs; empty if they match.
std::string mismatch(const HfTensor& want, const SafetensorsEntry& found) {
  if (found.shape == want.file_shape() && is_readable(found)) return "";
  return cat(excerpt(found.name), " is ", found, ", expected F32, BF16 or F16 ",
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

HfWeights::HfWeights(const std::string& path, const std::vector<HfTensor>& tensors, HfLayout layout)
    : folder_(path), layout_(std::move(layout)) {
  for (const HfTensor& tensor : tensors) {
    const std::vector<std::string> names = tensor.file_names();
    Item& item = items_.emplace(tensor.name, Item{tensor, {}}).first->second;
    item.files.resize(names.size());
    for (size_t i = 0; i < names.size(); ++i) parts_.emplace(names[i], Part{&item, i});
  }
  const SafetensorsFolder::Tensor* head = nullptr;
  std::vector<std::string> problems;
  for (const auto& [full_name, file] : folder_.tensors()) {
    const std::string_view name = without_prefix(full_name, layout_.prefix);
    if (layout_.is_buffer != nullptr && layout_.is_buffer(name)) continue;
    const auto it = parts_.find(name);
    if (it == parts_.end() && name == kHead && !layout_.embedding.empty()) {
      head = &file;
      continue;
    }
    if (it == parts_.end()) {
      problems.push_back(cat(excerpt(full_name), " is ", *file.entry, ", unknown in this model"));
      continue;
    }
    auto& place = it->second.item->files[it->second.index];
    if (place.entry != nullptr) {
      problems.push_back(cat(name, " is there with and without '", layout_.prefix, "'"));
    } else {
      place = file;
      const std::string problem = mismatch(it->second.item->tensor, *file.entry);
      if (!problem.empty()) problems.push_back(problem);
    }
  }
  for (const auto& [name, part] : parts_) {
    if (part.item->files[part.index].entry == nullptr) {
      problems.push_back(
          cat(name, " is missing, expected ", text_of(part.item->tensor.file_shape())));
    }
  }
  if (!problems.empty()) fail_list(path, layout_, problems);
  if (head != nullptr) check_head(*head);
}

void HfWeights::check_head(const SafetensorsFolder::Tensor& head) const {
  const Item& item = items_.find(layout_.embedding)->second;
  if (const std::string problem = mismatch(item.tensor, *head.entry); !problem.empty()) {
    throw DataError(cat(head.file->path(), ": ", problem));
  }
  // Converts row by row via f32, because the element types may differ.
  const int64_t rows = item.tensor.shape[0];
  const int64_t cols = item.tensor.shape[1];
  const SafetensorsFolder::Tensor& file = item.files.front();
  std::vector<float> head_row(static_cast<size_t>(cols));
  std::vector<float> row(static_cast<size_t>(cols));
  for (int64_t r = 0; r < rows; ++r) {
    convert(source_of(head), r * cols, {head_row.data(), DType::kF32}, cols);
    convert(source_of(file), r * cols, {row.data(), DType::kF32}, cols);
    head.file->check();
    file.file->check();
    if (std::memcmp(head_row.data(), row.data(), row.size() * sizeof(float)) != 0) {
      throw DataError(cat(head.file->path(), ": ", head.entry->name, " differs from ",
                          file.entry->name, " in row ", r,
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
    const SafetensorsFolder::Tensor& file = item.files.front();
    convert_transposed(source_of(file), {dst.data, dst.dtype},
                       {.source_cols = shape[0], .first = first_row, .rows = rows, .cols = cols});
    file.file->check();
    return;
  }
  const int64_t part_rows = shape[0] / std::ssize(item.files);
  for (int64_t row = first_row; row < first_row + rows;) {
    const int64_t part = row / part_rows, begin = row % part_rows;
    const int64_t count = std::min(part_rows - begin, first_row + rows - row);
    const SafetensorsFolder::Tensor& file = item.files[static_cast<size_t>(part)];
    const Target target{
        static_cast<std::byte*>(dst.data) + (row - first_row) * cols * dtype_size(dst.dtype),
        dst.dtype};
    convert(source_of(file), begin * cols, target, count * cols);
    file.file->check();
    row += count;
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
  read_rows(item, first_row, filled, dst);
  // Bits of 0 represent the number 0 in all three types.
  const int64_t row_bytes = cols * dtype_size(dst.dtype);
  if (rows > filled) {
    std::memset(static_cast<std::byte*>(dst.data) + filled * row_bytes, 0,
                static_cast<size_t>((rows - filled) * row_bytes));
  }
}

}  // namespace shale::models
