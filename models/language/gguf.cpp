#include "shale/models/language/gguf.h"

#include <algorithm>
#include <span>
#include <utility>

#include "shale/base/error.h"

namespace shale::models {
namespace {

// Returns "general.file_type": the type of most tensors.
uint32_t file_type(GgufType type) {
  switch (type) {
    case GgufType::kF32: return 0;
    case GgufType::kF16: return 1;
    case GgufType::kQ8_0: return 7;
    case GgufType::kBF16: return 32;
  }
  throw InternalError(cat("gguf: unknown tensor type ", static_cast<uint32_t>(type)));
}

GgufValues all_values(const GgufModel& model, const GgufValues& tokenizer, GgufType type) {
  GgufValues values = {{"general.architecture", model.architecture},
                       {"general.file_type", file_type(type)}};
  if (type == GgufType::kQ8_0) values.emplace_back("general.quantization_version", uint32_t{2});
  values.insert(values.end(), model.values.begin(), model.values.end());
  values.insert(values.end(), tokenizer.begin(), tokenizer.end());
  return values;
}

std::vector<GgufTensor> all_tensors(const GgufModel& model, GgufType type) {
  std::vector<GgufTensor> tensors;
  for (const auto& [tensor, values] : model.constants) tensors.push_back(tensor);
  for (const GgufParameter& one : model.parameters) {
    tensors.push_back({one.name, one.as_asked ? type : GgufType::kF32, one.shape});
  }
  return tensors;
}

class Writer final : public StoredModelWriter {
 public:
  Writer(const std::string& file, const GgufModel& model, const GgufValues& tokenizer,
         GgufType type)
      : parameters_(model.parameters),
        writer_(file, all_values(model, tokenizer, type), all_tensors(model, type)) {
    for (const auto& [tensor, values] : model.constants) writer_.write(values);
  }

  void write(std::string_view name, const View& values) override {
    if (next_ == parameters_.size() || parameters_[next_].parameter != name) {
      throw InternalError(cat("export: '", name, "' was given, expected '",
                              next_ == parameters_.size() ? "(none)" : parameters_[next_].parameter,
                              "'"));
    }
    const GgufParameter& one = parameters_[next_++];
    const int64_t rows = one.shape.front();
    const int64_t columns = one.shape.size() == 1 ? 1 : one.shape.back();
    if (values.dtype != DType::kF32 || !values.contiguous() || values.size(0) < rows ||
        values.numel() != values.size(0) * columns) {
      throw ShapeError(cat("export: '", name, "' is ", values, ", expected dense fp32",
                           to_string(Shape(one.shape)), " or more rows"));
    }
    const std::span<const float> all(values.as<float>(), static_cast<size_t>(rows * columns));
    if (one.paired_heads == 0) return writer_.write(all);
    std::vector<float> paired;
    paired.reserve(all.size());
    const int64_t size = rows / one.paired_heads;  // number of rows of a head
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t head = row / size, i = row % size;
      const int64_t from = head * size + i / 2 + i % 2 * (size / 2);
      const auto part = all.subspan(static_cast<size_t>(from * columns), size_t(columns));
      paired.insert(paired.end(), part.begin(), part.end());
    }
    writer_.write(paired);
  }

  void commit() override {
    if (next_ != parameters_.size()) {
      throw InternalError(cat("export: '", parameters_[next_].parameter, "' has not been written"));
    }
    writer_.commit();
  }

 private:
  std::vector<GgufParameter> parameters_;
  GgufWriter writer_;
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<StoredModelWriter> make_gguf_writer(const std::string& file, const GgufModel& model,
                                                    const GgufValues& tokenizer, GgufType type) {
  return std::make_unique<Writer>(file, model, tokenizer, type);
}

}  // namespace shale::models
