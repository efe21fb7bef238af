#include "shale/models/diffusion/dit_weights.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/comm/parallel/data/full_state.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/json_object.h"
#include "shale/runtime/io/safetensors_writer.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "config.json";
constexpr const char* kPositions = "pos_embed";  // name of the position table in the paper's format
constexpr const char* kAverage = "ema";  // key of the averaged weights in the paper's checkpoints
constexpr size_t kMaxListed = 10;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// ---- Names ----

// Name of a module in Shale and in diffusers.
struct ModuleName {
  const char *ours, *theirs;
};
constexpr ModuleName kOnce[] = {{"x_embedder.proj", "pos_embed.proj"},
                                {"final_layer.linear", "proj_out_2"},
                                {"final_layer.adaLN_modulation.1", "proj_out_1"}};
constexpr ModuleName kCopied[] = {
    {"t_embedder.mlp.0", "norm1.emb.timestep_embedder.linear_1"},
    {"t_embedder.mlp.2", "norm1.emb.timestep_embedder.linear_2"},
    {"y_embedder.embedding_table", "norm1.emb.class_embedder.embedding_table"}};
constexpr ModuleName kOfBlock[] = {{"attn.proj", "attn1.to_out.0"},
                                   {"mlp.fc1", "ff.net.0.proj"},
                                   {"mlp.fc2", "ff.net.2"},
                                   {"adaLN_modulation.1", "norm1.linear"}};

const char* theirs_of(std::span<const ModuleName> names, std::string_view ours) {
  const auto found = std::ranges::find(names, ours, &ModuleName::ours);
  return found == names.end() ? nullptr : found->theirs;
}

std::vector<std::vector<std::string>> diffusers_parts(const std::string& name, int64_t layers) {
  const size_t dot = name.rfind('.');
  const std::string module = name.substr(0, dot), leaf = name.substr(dot);  // for example ".weight"
  if (const char* theirs = theirs_of(kOnce, module)) return {{theirs + leaf}};
  if (const char* theirs = theirs_of(kCopied, module)) {
    std::vector<std::string> copies;
    for (int64_t i = 0; i < layers; ++i) {
      copies.push_back(cat("transformer_blocks.", i, ".", theirs, leaf));
    }
    return {copies};
  }
  // The name is "blocks.<i>.<module>".
  const size_t first = module.find('.'), second = module.find('.', first + 1);
  const std::string block = cat("transformer_blocks", module.substr(first, second + 1 - first));
  const std::string rest = module.substr(second + 1);
  if (const char* theirs = theirs_of(kOfBlock, rest)) return {{block + theirs + leaf}};
  if (rest != "attn.qkv") throw InternalError(cat("diffusers has no name for ", name));
  std::vector<std::vector<std::string>> parts;
  for (const char* which : {"q", "k", "v"}) parts.push_back({cat(block, "attn1.to_", which, leaf)});
  return parts;
}

std::vector<int64_t> shape_of_part(const Shape& whole, const DitTensor& tensor) {
  std::vector<int64_t> shape(whole.begin(), whole.end());
  shape[0] /= std::ssize(tensor.parts);
  return shape;
}

// ---- Location of weights ----

// Weights file, and the config.json beside it. The paper's format has no config.json.
struct Place {
  fs::path weights;
  std::optional<fs::path> config;
};

Place find_weights(const std::string& path) {
  if (!is_there(path))
    throw MissingInputError(cat(
        "--init ", path, ": no such file or folder; download the weights to this machine first"));
  std::error_code error;
  if (!fs::is_directory(path, error)) return {.weights = path, .config = {}};
  fs::path folder = path;
  if (!is_there(folder / kConfigFile) && is_there(folder / "transformer")) folder /= "transformer";
  for (const char* name : {kDiffusersWeights, "diffusion_pytorch_model.bin"}) {
    if (!is_there(folder / name)) continue;
    return {.weights = folder / name, .config = folder / kConfigFile};
  }
  if (is_there(folder / kPaperWeights)) return {.weights = folder / kPaperWeights, .config = {}};
  throw MissingInputError(cat(folder.string(), ": no weights found, expected ", kDiffusersWeights,
                              " or ", kPaperWeights));
}

// ---- config.json ----

// Returns the keys in diffusers' config.json that are sizes of the model, and their values.
std::vector<std::pair<const char*, int64_t>> sizes_of(const DitConfig& config) {
  return {{"num_layers", config.layers},
          {"num_attention_heads", config.heads},
          {"attention_head_dim", config.width / config.heads},
          {"in_channels", config.channels},
          {"out_channels", config.results()},
          {"patch_size", config.patch},
          {"sample_size", config.pixels},
          {"num_embeds_ada_norm", config.classes}};
}

void check_config(const fs::path& path, const DitConfig& model) {
  const JsonObject config = JsonObject::load(path.string());
  std::vector<std::string> problems;
  for (const auto& [key, want] : sizes_of(model)) {
    const int64_t found = config.integer(key);
    if (found != want) problems.push_back(cat(key, " is ", found, ", expected ", want));
  }
  const std::string norm = config.text("norm_type", "ada_norm_zero");
  if (norm != "ada_norm_zero") {
    problems.push_back(cat("norm_type is ", excerpt(norm), ", expected ada_norm_zero"));
  }
  if (problems.empty()) return;
  std::string text = cat(path.string(), ": does not describe the model of --model and --data: ");
  for (size_t i = 0; i < problems.size(); ++i) text += cat(i > 0 ? "; " : "", problems[i]);
  throw DataError(text);
}

// ---- Values ----

// Reads rows [first_row, first_row + rows) of a tensor into dense memory.
void read_rows(const StoredTensor& tensor, int64_t first_row, int64_t rows, BoxTarget to) {
  std::vector<int64_t> begin(tensor.shape.size(), 0), sizes = tensor.shape;
  begin[0] = first_row;
  sizes[0] = rows;
  to.strides = dense_strides(sizes);
  read_box(tensor, begin, sizes, to);
}

std::vector<float> values_of(const StoredTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(Shape(tensor.shape).numel()));
  read_rows(tensor, 0, tensor.shape[0], {.data = values.data(), .dtype = DType::kF32});
  return values;
}

}  // namespace

std::vector<DitTensor> dit_tensors(const Dit& model, DitVariant names) {
  std::vector<DitTensor> tensors;
  for (const Parameter* parameter : whole_parameters(model)) {
    const std::string name = parameter->full_name();
    tensors.push_back({.name = name,
                       .parts = names == DitVariant::kPaper
                                    ? std::vector<std::vector<std::string>>{{name}}
                                    : diffusers_parts(name, model.config().layers)});
  }
  return tensors;
}

std::string dit_config_json(const DitConfig& config) {
  Json json = {{"_class_name", "DiTTransformer2DModel"},
               {"activation_fn", "gelu-approximate"},
               {"attention_bias", true},
               {"dropout", 0.0},
               {"norm_elementwise_affine", false},
               {"norm_eps", 1e-5},
               {"norm_num_groups", 32},
               {"norm_type", "ada_norm_zero"},
               {"upcast_attention", false}};
  for (const auto& [key, value] : sizes_of(config)) json[key] = value;
  return json.dump(2) + "\n";
}

DitWeights::DitWeights(const std::string& path, const Dit& model) {
  const Place place = find_weights(path);
  if (place.config) check_config(*place.config, model.config());
  path_ = place.weights.string();
  files_ = StoredTensors(path_, kAverage);
  std::map<std::string, bool, std::less<>> known{{kPositions, true}};
  std::vector<std::string> problems;
  const auto names = place.config ? DitVariant::kDiffusers : DitVariant::kPaper;
  for (DitTensor& tensor : dit_tensors(model, names)) {
    const auto want = shape_of_part(model.find_parameter(tensor.name)->whole, tensor);
    for (const auto& copies : tensor.parts) {
      for (const std::string& name : copies) {
        known[name] = true;
        const StoredTensor* found = files_.find(name);
        const auto dtype = found != nullptr ? found->type->dtype : std::nullopt;
        const bool is_real = dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
        if (found == nullptr) {
          problems.push_back(cat(name, " is missing, expected ", to_string(Shape(want))));
        } else if (!is_real || found->shape != want) {
          problems.push_back(cat(name, " is ", found->description(), ", expected F32, BF16 or F16 ",
                                 to_string(Shape(want))));
        }
      }
    }
    const std::string name = tensor.name;
    tensors_.emplace(name, std::move(tensor));
  }
  for (const auto& [name, tensor] : files_.tensors()) {
    if (!known.contains(name)) {
      problems.push_back(
          cat(excerpt(name), " is ", tensor.description(), ", unknown in this model"));
    }
  }
  if (!problems.empty()) {
    std::string text = cat(path_, ": the weights do not fit the model: ");
    for (size_t i = 0; i < std::min(problems.size(), kMaxListed); ++i) {
      text += cat(i > 0 ? "; " : "", problems[i]);
    }
    if (problems.size() > kMaxListed) text += cat("; and ", problems.size() - kMaxListed, " more");
    throw DataError(text);
  }
  for (const auto& [name, tensor] : tensors_) check_copies(tensor);
}

// Checks that all copies of a tensor are equal. If they differ, each block computes the condition
// with other weights, which Shale's model cannot do.
void DitWeights::check_copies(const DitTensor& tensor) const {
  for (const auto& copies : tensor.parts) {
    if (copies.size() < 2) continue;
    const std::vector<float> first = values_of(*files_.find(copies.front()));
    for (size_t i = 1; i < copies.size(); ++i) {
      const std::vector<float> other = values_of(*files_.find(copies[i]));
      if (std::memcmp(first.data(), other.data(), first.size() * sizeof(float)) == 0) continue;
      throw DataError(cat(path_, ": ", copies[i], " differs from ", copies.front(),
                          "; expected equal tensors, because all blocks share the layers that "
                          "compute the condition"));
    }
  }
}

void DitWeights::read(const Parameter& parameter, int64_t first_row, const View& to) const {
  const auto found = tensors_.find(parameter.full_name());
  if (found == tensors_.end()) {
    throw InternalError(cat("the stored model has no parameter ", parameter.full_name()));
  }
  const auto& parts = found->second.parts;
  const int64_t cols = parameter.whole.numel() / parameter.whole[0];
  const int64_t part_rows = parameter.whole[0] / std::ssize(parts);
  const int64_t end = first_row + to.numel() / cols;
  for (int64_t row = first_row; row < end;) {
    const int64_t begin = row % part_rows, count = std::min(part_rows - begin, end - row);
    auto* const target =
        static_cast<std::byte*>(to.data) + (row - first_row) * cols * dtype_size(to.dtype);
    const StoredTensor& part = *files_.find(parts.at(static_cast<size_t>(row / part_rows)).front());
    read_rows(part, begin, count, {.data = target, .dtype = to.dtype});
    row += count;
  }
}

void export_dit(const std::string& folder, const Dit& model, comm::DataParallel& parallel,
                bool is_main) {
  const bool is_paper = model.config().variant == DitVariant::kPaper;
  const std::vector<DitTensor> tensors = dit_tensors(model, model.config().variant);
  std::vector<SafetensorsSpec> specs;
  for (const DitTensor& tensor : tensors) {
    const auto shape = shape_of_part(model.find_parameter(tensor.name)->whole, tensor);
    for (const auto& copies : tensor.parts) {
      for (const std::string& name : copies) specs.push_back({name, DType::kF32, shape});
    }
  }
  const std::vector<float> positions = position_table(model.config());
  const Shape of_positions{1, model.config().tokens(), model.config().width};
  if (is_paper) {
    specs.push_back({kPositions, DType::kF32, {of_positions.begin(), of_positions.end()}});
  }
  std::optional<SafetensorsWriter> file;
  if (is_main) {
    const fs::path path = fs::path(folder) / (is_paper ? kPaperWeights : kDiffusersWeights);
    file.emplace(path.string(), specs);
  }
  comm::FullState state(parallel, /*root=*/0);
  for (const DitTensor& tensor : tensors) {
    const View values = state.read(*model.find_parameter(tensor.name));
    if (!file) continue;
    const auto bytes =
        std::as_bytes(std::span(values.as<float>(), static_cast<size_t>(values.numel())));
    const size_t size = bytes.size() / tensor.parts.size();
    for (size_t part = 0; part < tensor.parts.size(); ++part) {
      for (size_t i = 0; i < tensor.parts[part].size(); ++i) {
        file->write(bytes.subspan(part * size, size));
      }
    }
  }
  if (!file) return;
  if (is_paper) file->write(std::as_bytes(std::span(positions)));
  file->commit();
  if (!is_paper) {
    write_file_atomically((fs::path(folder) / kConfigFile).string(),
                          dit_config_json(model.config()));
  }
}

}  // namespace shale::models
