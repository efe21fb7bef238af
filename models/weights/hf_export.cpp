#include "shale/models/weights/hf_export.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/convert_internal.h"
#include "shale/runtime/io/dcp_writer.h"
#include "shale/runtime/io/file.h"

namespace shale::models {

using namespace io_internal;

namespace {

constexpr int64_t kBufferElements = int64_t{1} << 20;

DType checked(DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16) return dtype;
  throw ConfigError(cat("export as ", dtype_name(dtype), ", expected fp32, bf16 or fp16"));
}

std::vector<SafetensorsSpec> specs_of(const std::vector<HfTensor>& tensors, const HfLayout& layout,
                                      DType dtype) {
  std::vector<SafetensorsSpec> specs;
  for (const HfTensor& tensor : tensors) {
    for (const std::string& name : tensor.file_names()) {
      specs.push_back({layout.file_name(name), dtype, tensor.file_shape()});
    }
  }
  return specs;
}

// Makes the writer of the weights. In the format kDcp, a tied output layer is an alias of the
// embedding, as in the state_dict() of transformers' models.
std::unique_ptr<TensorWriter> make_writer(const std::string& folder,
                                          const std::vector<HfTensor>& tensors,
                                          const HfLayout& layout, DType dtype,
                                          const ExportOptions& options) {
  std::vector<SafetensorsSpec> specs = specs_of(tensors, layout, dtype);
  if (options.files == WeightFiles::kSafetensors) {
    return std::make_unique<SafetensorsFolderWriter>(
        folder, std::move(specs),
        SafetensorsFolderOptions{.metadata = {}, .max_shard_bytes = options.max_shard_bytes});
  }
  std::map<std::string, std::string> aliases;
  const std::string head = layout.file_name(layout.head);
  const bool has_head = std::any_of(specs.begin(), specs.end(),
                                    [&](const SafetensorsSpec& spec) { return spec.name == head; });
  if (!has_head && !layout.embedding.empty()) aliases[head] = layout.file_name(layout.embedding);
  return std::make_unique<DcpWriter>(folder, std::move(specs), std::move(aliases));
}

// Removes files of an older export: first config.json, because no reader accepts a folder without
// it, then generation files, which may not describe the new model.
void remove_old(const std::string& folder) {
  const Folder opened = Folder::open(folder);
  for (const char* name : {kHfConfigFile, "generation_config.json", "special_tokens_map.json",
                           "chat_template.jinja"}) {
    if (opened.has(name)) opened.remove_file(name);
  }
  opened.sync();
}

}  // namespace

const char* torch_dtype(DType dtype) {
  return dtype == DType::kBF16 ? "bfloat16" : dtype == DType::kF16 ? "float16" : "float32";
}

HfExport::HfExport(std::string folder, std::vector<HfTensor> tensors, HfLayout layout,
                   std::string config_json, const ExportOptions& options)
    : folder_(std::move(folder)),
      tensors_(std::move(tensors)),
      layout_(std::move(layout)),
      config_json_(std::move(config_json)),
      dtype_(checked(options.dtype)),
      tokenizer_(options.tokenizer),
      extras_(options.extras),
      writer_(make_writer(folder_, tensors_, layout_, dtype_, options)) {}

void HfExport::write(std::string_view name, const View& values) {
  if (next_ == tensors_.size() || tensors_[next_].name != name) {
    throw InternalError(cat("export: '", name, "' was given, expected '",
                            next_ == tensors_.size() ? "(none)" : tensors_[next_].name, "'"));
  }
  check_values(tensors_[next_], values);
  write_rows(tensors_[next_], values);
  ++next_;
}

void HfExport::check_values(const HfTensor& tensor, const View& values) const {
  const std::vector<int64_t>& shape = tensor.shape;
  const bool may_pad = layout_.may_pad(tensor.name);
  const bool fits = static_cast<size_t>(values.ndim()) == shape.size() &&
                    (values.size(0) == shape[0] || (may_pad && values.size(0) > shape[0])) &&
                    std::equal(shape.begin() + 1, shape.end(), values.shape.begin() + 1);
  if (!fits || !values.contiguous() || values.dtype != DType::kF32) {
    throw ShapeError(cat("export: '", tensor.name, "' is ", values, ", expected dense fp32",
                         to_string(Shape(shape)), may_pad ? " or more rows" : ""));
  }
}

void HfExport::write_rows(const HfTensor& tensor, const View& values) {
  const std::vector<int64_t> shape = tensor.transposed ? tensor.file_shape() : tensor.shape;
  const int64_t rows = shape[0];
  int64_t cols = 1;
  for (size_t d = 1; d < shape.size(); ++d) cols *= shape[d];
  const Source source{static_cast<const std::byte*>(values.data), DType::kF32};
  // Converts a few rows at a time, to limit memory.
  const int64_t rows_at_once = std::clamp(kBufferElements / cols, int64_t{1}, rows);
  std::vector<std::byte> buffer(static_cast<size_t>(rows_at_once * cols * dtype_size(dtype_)));
  const Target target{buffer.data(), dtype_};
  const int64_t part_rows = rows / std::ssize(tensor.file_names());
  for (int64_t first = 0, count = 0; first < rows; first += count) {
    count = std::min(rows_at_once, part_rows - first % part_rows);
    const auto bytes = static_cast<size_t>(count * cols * dtype_size(dtype_));
    if (!tensor.transposed && dtype_ == DType::kF32) {
      writer_->write({source.data + first * cols * dtype_size(dtype_), bytes});
      continue;
    }
    if (tensor.transposed) {
      convert_transposed(source, target,
                         {.source_cols = rows, .first = first, .rows = count, .cols = cols});
    } else {
      convert(source, first * cols, target, count * cols);
    }
    writer_->write(std::span<const std::byte>(buffer).first(bytes));
  }
}

void HfExport::commit() {
  if (next_ != tensors_.size()) {
    throw InternalError(cat("export: '", tensors_[next_].name, "' has not been written"));
  }
  writer_->finish();    // writes all weights before any old file changes, because that is slow
  remove_old(folder_);  // after a crash, the new weights must not lie beside another model's files
  writer_->commit();
  const auto write = [this](const std::string& name, const std::string& text) {
    write_file_atomically((std::filesystem::path(folder_) / name).string(), text);
  };
  std::map<std::string, std::string> files =
      exported_files(extras_, tokenizer_.get(), config_json_);
  // config.json is written last, because it makes the folder valid
  const auto config = files.extract(kHfConfigFile);
  for (const auto& [name, text] : files) write(name, text);
  if (!config.empty()) write(kHfConfigFile, config.mapped());
}

}  // namespace shale::models
