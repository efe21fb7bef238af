#include "shale/models/gpt2/trainer_files.h"

#include <utility>

#include "shale/base/error.h"
#include "shale/models/weights/llmc_file.h"
#include "shale/runtime/io/torch_archive.h"

namespace shale {
namespace {

constexpr int64_t kMaxStoredSize = int64_t{1} << 30, kMaxLayers = 10'000;

void check_sizes(const std::string& path, const HfGpt2Config& config) {
  for (const int64_t size :
       {config.layers, config.width, config.heads, config.vocab, config.context}) {
    if (size >= 1 && size <= kMaxStoredSize && config.layers <= kMaxLayers) continue;
    throw DataError(cat(path, ": a size of the model is ", size, ", expected 1 to ", kMaxStoredSize,
                        ", and at most ", kMaxLayers, " layers"));
  }
  if (config.width % config.heads == 0) return;
  throw DataError(cat(path, ": the width is ", config.width, ", expected a multiple of the ",
                      config.heads, " heads"));
}

std::vector<Gpt2Tensor> linear_tensors(const HfGpt2Config& config) {
  std::vector<Gpt2Tensor> tensors = gpt2_tensors(config);
  for (Gpt2Tensor& tensor : tensors) tensor.transposed = false;
  return tensors;
}

// ---- nanoGPT ----

std::optional<Gpt2File> open_nanogpt(const std::string& path, const MappedFile& file) {
  const TorchArchive archive(file.bytes(), path);
  if (!archive.root().is(PickleKind::kDict)) return std::nullopt;
  const auto arguments = archive.root().find("model_args");
  if (!arguments) return std::nullopt;
  const auto size = [&](const char* key) { return arguments->get(key).integer(); };
  HfGpt2Config config{.layers = size("n_layer"),
                      .width = size("n_embd"),
                      .heads = size("n_head"),
                      .vocab = size("vocab_size"),
                      .context = size("block_size"),
                      .gelu_tanh = false};
  check_sizes(path, config);
  std::vector<Gpt2Tensor> tensors = linear_tensors(config);
  const auto bias = arguments->find("bias");
  for (Gpt2Tensor& tensor : tensors) {
    tensor.zero_if_missing = bias && !bias->flag() && tensor.name.ends_with(".bias");
  }
  return Gpt2File{config, std::move(tensors), StoredTensors(path)};
}

// ---- llm.c ----

std::optional<Gpt2File> open_llmc(const std::string& path) {
  constexpr int32_t kMagic = 20240326;
  std::optional<models::LlmcFile> file = models::LlmcFile::open(path, kMagic);
  if (!file) return std::nullopt;
  const HfGpt2Config config{.layers = file->header(4),
                            .width = file->header(6),
                            .heads = file->header(5),
                            .vocab = file->header(3),
                            .context = file->header(2)};
  const int64_t C = config.width, rows = file->header(7);
  check_sizes(path, config);
  if (rows < config.vocab) {
    throw DataError(cat(path, ": the embedding has ", rows, " rows, expected at least ",
                        config.vocab, ", one per token"));
  }
  file->add("wte.weight", {config.vocab, C}, rows);
  file->add("wpe.weight", {config.context, C});
  using Shape = std::vector<int64_t>;
  for (const auto& [name, shape] : {std::pair("ln_1.weight", Shape{C}),
                                    {"ln_1.bias", {C}},
                                    {"attn.c_attn.weight", {3 * C, C}},
                                    {"attn.c_attn.bias", {3 * C}},
                                    {"attn.c_proj.weight", {C, C}},
                                    {"attn.c_proj.bias", {C}},
                                    {"ln_2.weight", {C}},
                                    {"ln_2.bias", {C}},
                                    {"mlp.c_fc.weight", {4 * C, C}},
                                    {"mlp.c_fc.bias", {4 * C}},
                                    {"mlp.c_proj.weight", {C, 4 * C}},
                                    {"mlp.c_proj.bias", {C}}}) {
    for (int64_t i = 0; i < config.layers; ++i) file->add(cat("h.", i, ".", name), shape);
  }
  file->add("ln_f.weight", {C});
  file->add("ln_f.bias", {C});
  return Gpt2File{config, linear_tensors(config), file->finish()};
}

}  // namespace

std::optional<Gpt2File> open_gpt2_file(const std::string& path) {
  const MappedFile file(path);
  if (TorchArchive::starts(file.bytes())) return open_nanogpt(path, file);
  return open_llmc(path);
}

void find_orientation(const StoredTensors& files, std::vector<Gpt2Tensor>& tensors) {
  constexpr const char* kFirst = "h.0.attn.c_attn.weight";
  const StoredTensor* found = files.find(kFirst);
  if (found == nullptr) found = files.find(cat(gpt2_layout().prefix, kFirst));
  for (Gpt2Tensor& tensor : tensors) {
    if (tensor.name == kFirst && (found == nullptr || found->shape != tensor.shape)) return;
  }
  for (Gpt2Tensor& tensor : tensors) tensor.transposed = false;
}

}  // namespace shale
