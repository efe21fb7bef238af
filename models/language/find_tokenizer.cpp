#include "shale/models/language/find_tokenizer.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/models/language/checkpoint_model.h"
#include "shale/runtime/data/chat/chat_encoder.h"
#include "shale/runtime/data/tokens/data_mix.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;

// Returns the checkpoint or folder from which the run loads its model; empty: it starts with random
// weights.
std::string origin_of(const TrainConfig& config) {
  const std::string& resume = config.run.resume;
  if (resume != "none") {
    if (auto checkpoint = newest_checkpoint(resume == "auto" ? config.run.out : resume)) {
      return *checkpoint;
    }
  }
  const std::string& init = config.language.init;
  return init.empty() ? std::string() : newest_checkpoint(init).value_or(init);
}

// Adds to the extras the chat template that the run uses, and the token that ends a turn.
void add_conversations(ChatTemplate asked, const std::shared_ptr<const StoredTokenizer>& tokenizer,
                       HfExtras& extras) {
  // Without a token that ends turns, the run trains on prompts and completions only, which use no
  // template.
  const auto end = ChatEncoder(tokenizer, asked).end_of_turn();
  if (!end) return;
  const ChatTemplate style = resolve_chat_template(*tokenizer, asked);
  add_chat(extras, *tokenizer,
           style == ChatTemplate::kAuto ? tokenizer->chat["chat_template"].text()
                                        : chat_template_text(style),
           *end);
}

// Tokenizer of one input of the run.
struct Found {
  std::string of;  // name of the input, such as "--init gpt2"
  std::shared_ptr<const StoredTokenizer> tokenizer;
};

// Returns the tokenizers stored next to token data.
std::vector<Found> of_tokens(const DataConfig& source, const OncePerHost& once) {
  std::vector<Found> found;
  if (source.data.empty() || source.objective != Objective::kPretrain) return found;
  for (const DataPart& part : parse_data(source.data)) {
    DataOptions options{
        .path = part.path, .format = part.format, .once = once, .width = part.width};
    if (options.format == DataFormat::kAuto) options.format = source.format.kind;
    if (!options.width) options.width = source.format.width;
    const auto path = tokenizer_beside(options);
    if (path) found.push_back({cat("the tokens of ", part.path), read_tokenizer(*path)});
  }
  return found;
}

std::string described(const StoredTokenizer& tokenizer) {
  return cat(tokenizer.path, " of ", tokenizer.tokenizer.vocab_size(), " tokens");
}

}  // namespace

std::shared_ptr<const StoredTokenizer> find_tokenizer(const TrainConfig& config,
                                                      const OncePerHost& once) {
  const auto& language = config.language;
  const std::string& asked = language.source.tokenizer;
  std::vector<Found> all = of_tokens(language.source, once);
  if (asked == "none") {
    if (all.empty()) return nullptr;
    throw ConfigError(cat("--tokenizer none, but ", all.front().of, " were made with ",
                          described(*all.front().tokenizer), "; leave out --tokenizer"));
  }
  if (!language.init.empty()) {
    if (auto of_init = open_model_tokenizer(language.init)) {
      all.push_back({cat("--init ", language.init), std::move(of_init)});
    }
  }
  const std::string& resume = config.run.resume;
  if (!asked.empty()) {
    all.insert(all.begin(), {"--tokenizer", read_tokenizer(asked)});
  } else if (resume != "none") {
    // A resumed run keeps its tokenizer, or has none. A tokenizer that changed in the checkpoint is
    // detected later, by check_same_run(): this checkpoint may be damaged and an older one intact.
    if (const auto checkpoint = newest_checkpoint(resume == "auto" ? config.run.out : resume)) {
      auto own = find_tokenizer_in(*checkpoint);
      if (own == nullptr && all.empty()) return nullptr;
      if (own != nullptr) all.insert(all.begin(), {cat("--resume ", resume), std::move(own)});
    }
  }
  if (all.empty()) return nullptr;
  const Found& first = all.front();
  for (const Found& other : all) {
    if (are_same(*first.tokenizer, *other.tokenizer)) continue;
    throw ConfigError(cat("tokenizers differ: ", first.of, " has ", described(*first.tokenizer),
                          ", ", other.of, " has ", described(*other.tokenizer),
                          "; use one for all (without --tokenizer it is that of the data or "
                          "model)"));
  }
  return first.tokenizer;
}

HfExtras extras_of_tokenizer(HfExtras extras, const std::string& model, const std::string& file,
                             const StoredTokenizer& tokenizer) {
  if (model.empty() || !is_tokenizer_of(model, tokenizer)) {
    const fs::path folder = fs::path(file).parent_path();
    std::error_code error;
    // Without tokenizer_config.json, the other files of the folder may be unrelated.
    const bool is_published = fs::exists(folder / kTokenizerConfigFile, error);
    extras = is_published ? read_extras(folder.empty() ? "." : folder.string()) : HfExtras();
  }
  keep_tokens(tokenizer, extras);
  return extras;
}

HfExtras find_extras(const TrainConfig& config,
                     const std::shared_ptr<const StoredTokenizer>& tokenizer) {
  const std::string& file = config.language.source.tokenizer;
  if (file == "none") return {};  // without a tokenizer there are no tokens to describe
  const std::string origin = origin_of(config);
  HfExtras extras = origin.empty() ? HfExtras() : read_extras(origin);
  if (tokenizer == nullptr) return extras;
  if (!file.empty()) extras = extras_of_tokenizer(std::move(extras), origin, file, *tokenizer);
  keep_tokens(*tokenizer, extras);
  if (config.language.source.objective != Objective::kPretrain) {
    add_conversations(config.language.source.chat_template, tokenizer, extras);
  }
  return extras;
}

}  // namespace shale::models
