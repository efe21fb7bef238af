#include "shale/models/gpt2/trainer_files.h"

#include <array>
#include <cstring>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/io/torch_archive.h"

namespace shale {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 30, kMaxLayers = 10'000;

void check_sizes(const std::string& path, const HfGpt2Config& config) {
  for (const int64_t size :
       {config.layers, config.width, config.heads, config.vocab, config.context}) {
    if (size >= 1 && size <= kMaxSize && config.layers <= kMaxLayers) continue;
    throw DataError(cat(path, ": a size of the model is ", size, ", expected 1 to ", kMaxSize,
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

constexpr int32_t kMagic = 20240326, kLlama3Magic = 20240803;
constexpr size_t kHeaderBytes = 1024;

// Adds the tensors of all layers, one after another.
class LlmcTensors {
 public:
  LlmcTensors(const MappedFile& file, const SafetensorsDType& type, StoredTensors& files)
      : file_(file), type_(type), files_(files) {}

  // `stored_rows`: rows of the first dimension in the file, of which shape[0] are used.
  void add(const std::string& name, const std::vector<int64_t>& shape, int64_t stored_rows) {
    int64_t bytes = type_.bits / 8 * stored_rows;
    for (size_t d = 1; d < shape.size(); ++d) bytes *= shape[d];  // limited by check_sizes()
    if (bytes > std::ssize(file_.bytes()) - next_) {
      throw DataError(
          cat(file_.path(), ": ", file_.bytes().size(), " bytes, which end before ", name));
    }
    StoredPart part{.file = &file_,
                    .begin = std::vector<int64_t>(shape.size(), 0),
                    .shape = shape,
                    .elements = {file_.bytes().data() + next_, dense_strides(shape)}};
    files_.add({name, &type_, shape, {std::move(part)}});
    next_ += bytes;
  }
  void add_layers(int64_t layers, const std::string& name, const std::vector<int64_t>& shape) {
    for (int64_t i = 0; i < layers; ++i) add(cat("h.", i, ".", name), shape, shape[0]);
  }
  int64_t end() const { return next_; }

 private:
  const MappedFile& file_;
  const SafetensorsDType& type_;
  StoredTensors& files_;
  int64_t next_ = kHeaderBytes;
};

std::optional<Gpt2File> open_llmc(const std::string& path) {
  StoredTensors files;
  const MappedFile& file = files.map(path);
  std::array<int32_t, kHeaderBytes / sizeof(int32_t)> header{};
  if (file.bytes().size() < sizeof header) return std::nullopt;
  std::memcpy(header.data(), file.bytes().data(), sizeof header);
  if (header[0] == kLlama3Magic) {
    throw DataError(cat(path,
                        ": a Llama 3 of llm.c, whose header rounds the model's settings to "
                        "integers; start from the Hugging Face folder it was made of"));
  }
  if (header[0] != kMagic) return std::nullopt;
  const int32_t version = header[1];
  if (version != 3 && version != 5) {
    throw DataError(cat(path, ": version ", version, " of llm.c's models, expected 3 or 5"));
  }
  const HfGpt2Config config{.layers = header[4],
                            .width = header[6],
                            .heads = header[5],
                            .vocab = header[3],
                            .context = header[2]};
  const int64_t C = config.width, L = config.layers, rows = header[7];
  check_sizes(path, config);
  if (rows < config.vocab) {
    throw DataError(cat(path, ": ", rows, " rows of the embedding, expected at least the ",
                        config.vocab, " tokens"));
  }
  LlmcTensors all(file, *find_safetensors_dtype(version == 3 ? "F32" : "BF16"), files);
  all.add("wte.weight", {config.vocab, C}, rows);
  all.add("wpe.weight", {config.context, C}, config.context);
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
    all.add_layers(L, name, shape);
  }
  all.add("ln_f.weight", {C}, C);
  all.add("ln_f.bias", {C}, C);
  if (all.end() != std::ssize(file.bytes())) {
    throw DataError(cat(path, ": ", file.bytes().size(), " bytes, expected ", all.end()));
  }
  return Gpt2File{config, linear_tensors(config), std::move(files)};
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
