#include "shale/models/language/checkpoint_model.h"

#include <filesystem>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/kernels/elementwise.h"
#include "shale/models/language/adapters.h"
#include "shale/models/weights/checkpoint_values.h"
#include "shale/runtime/io/convert_internal.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;

LanguageModelConfig model_of(const CheckpointReader& reader) {
  const Json shape = checkpoint_fact(reader, "model shape");
  if (shape.is_null()) {
    throw DataError(cat(reader.path(),
                        ": 'model shape' is missing; expected a checkpoint of train_lm (shale "
                        "classify and evaluate take those of train_image)"));
  }
  return parse_model_shape(shape.dump(), cat(reader.path(), ": model shape"));
}

// Throws for a checkpoint with router biases (nn/moe.h). Only a resumed run can use them; a model
// without them would choose other experts.
void refuse_router_biases(const CheckpointReader& reader) {
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    if (!name.ends_with(".router_bias")) continue;
    throw DataError(cat(reader.path(), ": has MoE router biases, such as ", name,
                        ", which only a resumed run supports; use --resume"));
  }
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

}  // namespace

CheckpointModel::CheckpointModel(const std::string& checkpoint, bool ema)
    : reader_(checkpoint),
      config_(model_of(reader_)),
      ema_(ema),
      model_(make_language_model(config_)) {
  refuse_router_biases(reader_);
  if (const Json shape = checkpoint_fact(reader_, "lora adapters"); !shape.is_null()) {
    adapters_ = parse_adapter_shape(shape.dump(), cat(reader_.path(), ": lora adapters"));
    nn::add_adapters(*model_, adapters_->options, adapters_->targets);
  }
  if (const Json dtype = checkpoint_fact(reader_, kFrozenFact); !dtype.is_null()) {
    const auto kept =
        dtype.is_string() ? nn::find_frozen_dtype(dtype.text()) : std::optional<nn::FrozenDType>();
    if (!kept) {
      throw DataError(cat(reader_.path(), ": '", kFrozenFact, "' is ", dtype.dump(),
                          ", expected bf16, int8 or nf4"));
    }
    nn::keep_frozen(*model_, *kept);
  }
  for (const Parameter* parameter : model_->parameters()) {
    const std::string name = parameter->full_name() + (ema_ ? "/ema" : "");
    const CheckpointTensor* stored = reader_.find(name);
    if (stored == nullptr && ema_ && parameter->trainable) {
      throw DataError(cat(reader_.path(), ": no tensor '", name,
                          "', expected a checkpoint of a run with --ema"));
    }
    if (stored == nullptr) stored = reader_.find(parameter->full_name());
    const bool is_real =
        stored != nullptr && (stored->dtype == DType::kF32 || stored->dtype == DType::kBF16 ||
                              stored->dtype == DType::kF16 ||
                              (stored->dtype == DType::kU8 && nn::coded_layer(*parameter)));
    if (!is_real || !(Shape(stored->shape) == parameter->shape)) {
      const std::string found =
          stored == nullptr ? "missing" : cat(dtype_name(stored->dtype), Shape(stored->shape));
      throw DataError(cat(reader_.path(), ": tensor '", parameter->full_name(), "' is ", found,
                          ", expected fp32, bf16 or fp16 of shape ", parameter->shape));
    }
  }
}

CheckpointModel::~CheckpointModel() = default;

// Reads rows of a tensor, converted to the dtype of `to`.
void CheckpointModel::read_rows(const std::string& tensor, const Shape& shape, int64_t first_row,
                                const View& to) const {
  const std::string averaged = tensor + "/ema";
  const std::string& name = ema_ && reader_.find(averaged) != nullptr ? averaged : tensor;
  const DType dtype = reader_.find(name)->dtype;
  const int64_t row = shape.numel() / shape[0];
  std::vector<std::byte> bytes(static_cast<size_t>(to.numel() * dtype_size(dtype)));
  reader_.read(name, first_row * row, bytes);
  io_internal::convert({bytes.data(), dtype}, 0, {to.data, to.dtype}, to.numel());
}

void CheckpointModel::read(std::string_view name, const View& to, int64_t first_row) const {
  const Parameter* parameter = model_->find_parameter(name);
  if (parameter == nullptr) throw InternalError(cat("checkpoint: no parameter ", name));
  const auto* const layer = dynamic_cast<const nn::LinearWeights*>(parameter->owner);
  const nn::Lora* const adapter = layer == nullptr ? nullptr : layer->adapter();
  const bool is_plain = adapter == nullptr && nn::coded_layer(*parameter) == nullptr;
  if (is_plain || &layer->weight != parameter) {
    return read_rows(parameter->full_name(), parameter->shape, first_row, to);
  }
  const int64_t rows = to.size(0), in = layer->weight_shape()[1];
  std::vector<float> weight(static_cast<size_t>(rows * in));
  const View weights = make_view(weight.data(), {rows, in});
  if (nn::coded_layer(*parameter) != nullptr) {
    const int64_t bytes = parameter->shape[1];
    std::vector<std::byte> codes(static_cast<size_t>(rows * bytes));
    reader_.read(parameter->full_name(), first_row * bytes, codes);
    std::vector<float> numbers;
    for (const std::byte code : codes) numbers.push_back(std::to_integer<uint8_t>(code));
    nn::decode_rows(*layer, make_view(numbers.data(), {rows, bytes}), weights);
  } else {
    read_rows(parameter->full_name(), parameter->shape, first_row, weights);
  }
  if (adapter != nullptr) add_adapter(*adapter, first_row, weights);
  io_internal::convert({reinterpret_cast<const std::byte*>(weight.data()), DType::kF32}, 0,
                       {to.data, to.dtype}, to.numel());
}

// Adds rows of B A, the product of an adapter's matrices, to its layer's weight.
void CheckpointModel::add_adapter(const nn::Lora& adapter, int64_t first_row,
                                  const View& weights) const {
  const int64_t rows = weights.size(0), in = weights.size(1), rank = adapters_->options.rank;
  std::vector<float> a(static_cast<size_t>(rank * in)), b(static_cast<size_t>(rows * rank));
  const Parameter &of_a = adapter.a.weight, &of_b = adapter.b.weight;
  read_rows(of_a.full_name(), of_a.shape, 0, make_view(a.data(), {rank, in}));
  read_rows(of_b.full_name(), of_b.shape, first_row, make_view(b.data(), {rows, rank}));
  nn::merge_adapter(weights, make_view(a.data(), {rank, in}), make_view(b.data(), {rows, rank}),
                    adapters_->options.scale());
}

std::shared_ptr<const StoredTokenizer> CheckpointModel::tokenizer() const {
  return checkpoint_tokenizer(reader_);
}

std::string tokenizer_fact(const StoredTokenizer& tokenizer) {
  return cat(tokenizer.tokenizer.vocab_size(), " tokens (CRC-32C ", tokenizer.crc, ")");
}

std::shared_ptr<const StoredTokenizer> checkpoint_tokenizer(const CheckpointReader& reader) {
  const std::string path = (fs::path(reader.path()) / kTokenizerFile).string();
  const Json of_run = checkpoint_fact(reader, kTokenizerFact);
  const auto tokenizer = is_there(path) ? read_tokenizer(path) : nullptr;
  if (of_run.is_null()) return tokenizer;  // the run had none; a user may have added the file
  const std::string want = of_run.is_string() ? of_run.text() : of_run.dump();
  const std::string found = tokenizer == nullptr ? "no such file" : tokenizer_fact(*tokenizer);
  if (found == want) return tokenizer;
  throw DataError(cat(path, ": expected the tokenizer of the run, ", excerpt(want), ", found ",
                      found, "; put it back, or name the right one with --tokenizer"));
}

std::unique_ptr<StoredModel> open_model(const std::string& path) {
  if (!is_there(fs::path(path) / kHfConfigFile) || is_there(fs::path(path) / "checkpoints")) {
    if (const auto checkpoint = newest_checkpoint(path)) {
      return std::make_unique<CheckpointModel>(*checkpoint);
    }
  }
  return open_stored_model(path);
}

std::shared_ptr<const StoredTokenizer> open_model_tokenizer(const std::string& path) {
  const auto checkpoint = newest_checkpoint(path);
  return checkpoint ? checkpoint_tokenizer(CheckpointReader(*checkpoint)) : find_tokenizer_in(path);
}

bool is_tokenizer_of(const std::string& path, const StoredTokenizer& tokenizer) {
  const auto checkpoint = newest_checkpoint(path);
  if (checkpoint) {
    const Json of_run = checkpoint_fact(CheckpointReader(*checkpoint), kTokenizerFact);
    if (!of_run.is_null()) return of_run == Json(tokenizer_fact(tokenizer));
  }
  const auto own = find_tokenizer_in(checkpoint.value_or(path));
  return own != nullptr && own->crc == tokenizer.crc;
}

std::shared_ptr<const StoredTokenizer> find_tokenizer_in(const std::string& folder) {
  for (const char* name : {kTokenizerFile, "tokenizer.model"}) {
    const fs::path file = fs::path(folder) / name;
    if (is_there(file)) return read_tokenizer(file.string());
  }
  return nullptr;
}

std::unique_ptr<LanguageModel> load_model(const StoredModel& stored, Context& context,
                                          DType dtype) {
  auto model = make_language_model(stored.config());
  materialize(*model, context, dtype, /*seed=*/0);
  std::vector<float> values;
  for (Parameter* parameter : model->parameters()) {
    values.resize(static_cast<size_t>(parameter->numel()));
    stored.read(parameter->full_name(), make_view(values.data(), parameter->shape), 0);
    const Tensor from = from_host<float>(context, values, parameter->shape);
    kernels::axpby(context.exec(), {.a = from, .y = parameter->value});
  }
  context.synchronize();
  return model;
}

}  // namespace shale::models
