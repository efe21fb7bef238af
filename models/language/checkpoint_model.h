#pragma once

#include <memory>
#include <string>

#include "shale/comm/checkpoint/reader.h"
#include "shale/models/language/family.h"
#include "shale/models/language/lora_config.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale::models {

// The model of a checkpoint, as one that is stored: its f32 masters, or what frozen parameters
// have, with the products of adapters added to their weights. Not for several threads.
class CheckpointModel final : public StoredModel {
 public:
  // ema: the average of the weights. Throws as CheckpointReader; DataError for a checkpoint that
  // does not say what model it is of, or lacks a tensor of it.
  explicit CheckpointModel(const std::string& checkpoint, bool ema = false);
  ~CheckpointModel() override;

  const LanguageModelConfig& config() const override { return config_; }
  void read(std::string_view parameter, const View& to, int64_t first_row = 0) const override;

  const std::string& path() const { return reader_.path(); }
  // As checkpoint_tokenizer().
  std::shared_ptr<const StoredTokenizer> tokenizer() const;
  // Its adapters; none: there are none.
  const std::optional<AdapterShape>& adapters() const { return adapters_; }

 private:
  void add_adapter(const nn::Lora& adapter, int64_t first_row, const View& weights) const;
  void read_rows(const std::string& tensor, const Shape& shape, int64_t first_row,
                 const View& to) const;

  mutable CheckpointReader reader_;  // keeps chunks that were read
  LanguageModelConfig config_;
  bool ema_;
  std::optional<AdapterShape> adapters_;
  std::unique_ptr<LanguageModel> model_;  // for names and shapes: it has no memory
};

// What a path holds: a Hugging Face folder, or a checkpoint, or the newest of a run. Throws as
// open_stored_model() and CheckpointModel.
std::unique_ptr<StoredModel> open_model(const std::string& path);
// The tokenizer beside it: of a folder as find_tokenizer_in(), of a checkpoint its own, as
// checkpoint_tokenizer(); null: there is none.
std::shared_ptr<const StoredTokenizer> open_model_tokenizer(const std::string& path);
// Whether this is it: of a checkpoint, by what its run says, whatever lies there now.
bool is_tokenizer_of(const std::string& path, const StoredTokenizer& tokenizer);
// A folder's tokenizer.json, or SentencePiece's tokenizer.model; null: it has neither.
std::shared_ptr<const StoredTokenizer> find_tokenizer_in(const std::string& folder);

// What a checkpoint says of the tokenizer of its run, as its fact of this name.
inline constexpr const char* kTokenizerFact = "text tokenizer";
std::string tokenizer_fact(const StoredTokenizer& tokenizer);
// The tokenizer.json in a checkpoint; null: it has none and its run had none. Throws DataError for
// one that is missing, cannot be read, or is not that of the run.
std::shared_ptr<const StoredTokenizer> checkpoint_tokenizer(const CheckpointReader& reader);

// The stored model with parameters of that dtype on the context's device, without data parallelism.
std::unique_ptr<LanguageModel> load_model(const StoredModel& stored, Context& context, DType dtype);

}  // namespace shale::models
