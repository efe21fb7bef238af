#pragma once

#include <memory>
#include <string>

#include "shale/comm/checkpoint/reader.h"
#include "shale/models/language/family.h"
#include "shale/models/language/lora_config.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale::models {

// Reads the model of a checkpoint as a StoredModel: f32 masters, or the stored values of frozen
// parameters. Adapters are merged into the weights. Not thread-safe.
class CheckpointModel final : public StoredModel {
 public:
  // ema: use the averaged weights. Throws as CheckpointReader does; DataError if the checkpoint
  // does not describe its model or lacks one of the tensors.
  explicit CheckpointModel(const std::string& checkpoint, bool ema = false);
  ~CheckpointModel() override;

  const LanguageModelConfig& config() const override { return config_; }
  void read(std::string_view parameter, const View& to, int64_t first_row = 0) const override;

  const std::string& path() const { return reader_.path(); }
  // Returns checkpoint_tokenizer() of the checkpoint.
  std::shared_ptr<const StoredTokenizer> tokenizer() const;
  // Empty: the checkpoint has no adapters.
  const std::optional<AdapterShape>& adapters() const { return adapters_; }

 private:
  void add_adapter(const nn::Lora& adapter, int64_t first_row, const View& weights) const;
  void read_rows(const std::string& tensor, const Shape& shape, int64_t first_row,
                 const View& to) const;

  mutable CheckpointReader reader_;  // caches chunks
  LanguageModelConfig config_;
  bool ema_;
  std::optional<AdapterShape> adapters_;
  std::unique_ptr<LanguageModel> model_;  // only for names and shapes, without memory
};

// Opens the model at a path: a Hugging Face folder, a checkpoint, or the newest checkpoint of a
// run. Throws as open_stored_model() and CheckpointModel.
std::unique_ptr<StoredModel> open_model(const std::string& path);
// Returns the tokenizer of the model at a path. Reads a folder with find_tokenizer_in(), a
// checkpoint with checkpoint_tokenizer(). Null: the model has no tokenizer.
std::shared_ptr<const StoredTokenizer> open_model_tokenizer(const std::string& path);
// Returns true if the model at `path` was trained with `tokenizer`. For a checkpoint, compares the
// description that its run stored, because the tokenizer file in it may have changed since.
bool is_tokenizer_of(const std::string& path, const StoredTokenizer& tokenizer);
// Reads a folder's tokenizer.json, or SentencePiece's tokenizer.model; null: neither exists.
std::shared_ptr<const StoredTokenizer> find_tokenizer_in(const std::string& folder);

// Key under which a checkpoint stores the description of its run's tokenizer.
inline constexpr const char* kTokenizerFact = "text tokenizer";
std::string tokenizer_fact(const StoredTokenizer& tokenizer);
// Returns the tokenizer.json in a checkpoint; null: neither the checkpoint nor its run has one.
// Throws DataError if the file is missing, unreadable, or not the tokenizer of the run.
std::shared_ptr<const StoredTokenizer> checkpoint_tokenizer(const CheckpointReader& reader);

// Loads the stored model on the context's device, with parameters of this dtype, without data
// parallelism.
std::unique_ptr<LanguageModel> load_model(const StoredModel& stored, Context& context, DType dtype);

}  // namespace shale::models
