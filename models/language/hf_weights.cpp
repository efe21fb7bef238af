#include "shale/models/language/hf_weights.h"

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

std::string text_of(const std::vector<int64_t>& shape) {
  return to_string(Shape(shape));
}

Source source_of(const SafetensorsFolder::Tensor& tensor) {
  return {tensor.bytes().data(), *tensor.entry->type->dtype};
}

// Empty if the entry is what the model wants.
std::string mismatch(const HfTensor& want, const SafetensorsEntry& found) {
  if (found.shape == want.file_shape() && is_readable(found)) return "";
  return cat(excerpt(found.name), " is ", found, ", want F32, BF16 or F16 ",
             text_of(want.file_shape()));
}

[[noreturn]] void fail_list(const std::string& folder, const std::vector<std::string>& problems) {
  std::string text = cat(folder, ": the weights do not fit config.json: ");
  for (size_t i = 0; i < std::min(problems.size(), kMaxListed); ++i) {
    text += cat(i > 0 ? "; " : "", problems[i]);
  }
  if (problems.size() > kMaxListed) text += cat("; and ", problems.size() - kMaxListed, " more");
  throw DataError(text);
}

}  // namespace

std::vector<int64_t> HfTensor::file_shape() const {
  return transposed ? std::vector<int64_t>{shape[1], shape[0]} : shape;
}

std::string HfLayout::file_name(std::string_view parameter) const {
  return parameter == kHead ? std::string(parameter) : cat(prefix, parameter);
}

bool HfLayout::may_pad(std::string_view parameter) const {
  return parameter == embedding || parameter == kHead;
}

HfWeights::HfWeights(const std::string& folder, const std::vector<HfTensor>& tensors,
                     HfLayout layout)
    : folder_(folder), layout_(std::move(layout)) {
  for (const HfTensor& tensor : tensors) items_.emplace(tensor.name, Item{tensor, {}});
  const SafetensorsFolder::Tensor* head = nullptr;
  std::vector<std::string> problems;
  for (const auto& [full_name, file] : folder_.tensors()) {
    const std::string_view name = without_prefix(full_name, layout_.prefix);
    if (layout_.is_buffer != nullptr && layout_.is_buffer(name)) continue;
    const auto it = items_.find(name);
    if (it == items_.end() && name == kHead) {
      head = &file;
    } else if (it == items_.end()) {
      problems.push_back(cat(excerpt(full_name), " is ", *file.entry, ", unknown in this model"));
    } else if (it->second.file.entry != nullptr) {
      problems.push_back(cat(name, " is there with and without '", layout_.prefix, "'"));
    } else {
      it->second.file = file;
      const std::string problem = mismatch(it->second.tensor, *file.entry);
      if (!problem.empty()) problems.push_back(problem);
    }
  }
  for (const auto& [name, item] : items_) {
    if (item.file.entry == nullptr) {
      problems.push_back(cat(name, " is missing, want ", text_of(item.tensor.file_shape())));
    }
  }
  if (!problems.empty()) fail_list(folder, problems);
  if (head != nullptr) check_head(*head);
}

void HfWeights::check_head(const SafetensorsFolder::Tensor& head) const {
  const Item& item = items_.find(layout_.embedding)->second;
  if (const std::string problem = mismatch(item.tensor, *head.entry); !problem.empty()) {
    throw DataError(cat(head.file->path(), ": ", problem));
  }
  // A row at a time through f32, as the two may have different element types.
  const int64_t rows = item.tensor.shape[0];
  const int64_t cols = item.tensor.shape[1];
  std::vector<float> head_row(static_cast<size_t>(cols));
  std::vector<float> row(static_cast<size_t>(cols));
  for (int64_t r = 0; r < rows; ++r) {
    convert(source_of(head), r * cols, {head_row.data(), DType::kF32}, cols);
    convert(source_of(item.file), r * cols, {row.data(), DType::kF32}, cols);
    head.file->check();
    item.file.file->check();
    if (std::memcmp(head_row.data(), row.data(), row.size() * sizeof(float)) != 0) {
      throw DataError(cat(head.file->path(), ": ", head.entry->name, " differs from ",
                          item.file.entry->name, " in row ", r, "; the model ties the two"));
    }
  }
}

void HfWeights::read(std::string_view name, const View& dst, int64_t first_row) const {
  const auto it = items_.find(name);
  if (it == items_.end()) throw InternalError(cat("the model has no parameter '", name, "'"));
  const Item& item = it->second;
  const std::vector<int64_t>& shape = item.tensor.shape;
  const int64_t total_rows = shape[0];
  const int64_t cols = shape.size() == 2 ? shape[1] : 1;
  if (static_cast<size_t>(dst.ndim()) != shape.size() ||
      (shape.size() == 2 && dst.size(1) != cols) || !dst.contiguous()) {
    throw ShapeError(
        cat("read of '", name, "' into ", dst, ", want dense rows of ", text_of(shape)));
  }
  const int64_t rows = dst.size(0);
  if (first_row < 0 || (!layout_.may_pad(name) && rows > total_rows - first_row)) {
    throw ShapeError(cat("read of '", name, "': rows ", first_row, " to ", first_row + rows,
                         ", want a range in [0, ", total_rows, "]"));
  }
  const int64_t filled = std::clamp(total_rows - first_row, int64_t{0}, rows);
  const Source source = source_of(item.file);
  const Target target{dst.data, dst.dtype};
  if (item.tensor.transposed) {
    convert_transposed(
        source, target,
        {.source_cols = total_rows, .first = first_row, .rows = filled, .cols = cols});
  } else {
    convert(source, first_row * cols, target, filled * cols);
  }
  item.file.file->check();
  // Zero bits are zero in all three types.
  const int64_t row_bytes = cols * dtype_size(dst.dtype);
  if (rows > filled) {
    std::memset(static_cast<std::byte*>(dst.data) + filled * row_bytes, 0,
                static_cast<size_t>((rows - filled) * row_bytes));
  }
}

}  // namespace shale::models
