#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/comm/process_group.h"
#include "shale/models/language/model.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale::models {

// A question with answers among which a model chooses by their likelihood behind the context.
struct ChoiceItem {
  std::string context;
  std::vector<std::string> answers;
  int64_t right = 0;
};

// How lines of jsonl have questions, and the texts that EleutherAI's lm-evaluation-harness makes of
// them (lm_eval/tasks/hellaswag, arc, mmlu), without examples before them.
enum class ChoiceFormat {
  kHellaSwag,  // activity_label, ctx_a, ctx_b, endings, label
  kArc,        // question, choices {text, label}, answerKey
  kMmlu,       // question, choices, answer, and subject, if it has one
};

// Throws MissingInputError; DataError, with file and line, for what is malformed.
std::vector<ChoiceItem> read_choices(const std::string& path, ChoiceFormat format);

// How often the right answer was the likeliest: of its tokens' summed log-probability, of that for
// each character of the answer, and for each token.
struct ChoiceScores {
  int64_t items = 0, right = 0, right_by_character = 0, right_by_token = 0;
};

// The items of a rank are those whose number is its own modulo the ranks; the scores are of all.
// An item that is longer than the context loses its beginning. Throws DataError for an answer
// without tokens. Collective.
ChoiceScores score_choices(LanguageModel& model, Context& context, const StoredTokenizer& tokenizer,
                           const std::vector<ChoiceItem>& items, comm::ProcessGroup& group);

// Of a text, every token but the first predicted once, from those before it in its window.
struct TextScore {
  int64_t tokens = 0;  // that were predicted
  int64_t bytes = 0;   // of the text
  double loss = 0;     // the sum of -log p of these tokens

  double perplexity() const;     // of a token
  double bits_per_byte() const;  // of the text
};
// Windows of so many tokens, `batch` at a time, are the ranks' in turn. Collective.
struct TextWindows {
  int64_t length = 0, batch = 1;
};
TextScore score_text(LanguageModel& model, Context& context, const std::vector<int32_t>& tokens,
                     const TextWindows& windows, comm::ProcessGroup& group);

}  // namespace shale::models
