#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/comm/process_group.h"
#include "shale/models/language/model.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale::models {

// Multiple-choice question. The model chooses the answer that is most likely after the context.
struct ChoiceItem {
  std::string context;
  std::vector<std::string> answers;
  int64_t right = 0;
};

// Formats of questions in jsonl files. Their texts are those of EleutherAI's lm-evaluation-harness
// (lm_eval/tasks/hellaswag, arc, mmlu), zero-shot.
enum class ChoiceFormat {
  kHellaSwag,  // activity_label, ctx_a, ctx_b, endings, label
  kArc,        // question, choices {text, label}, answerKey
  kMmlu,       // question, choices, answer; subject is optional
};

// Reads questions. Throws MissingInputError; DataError, with file and line, for malformed lines.
std::vector<ChoiceItem> read_choices(const std::string& path, ChoiceFormat format);

// Numbers of questions for which the right answer has the highest log-probability. It is compared
// in three ways: the sum over the answer's tokens, this sum per character, and this sum per token.
struct ChoiceScores {
  int64_t items = 0, right = 0, right_by_character = 0, right_by_token = 0;
};

// Scores questions on all ranks: rank r of R takes the questions with index % R == r, and all ranks
// get the total. A question longer than the context is truncated at the front. Throws DataError for
// an answer without tokens. Collective.
ChoiceScores score_choices(LanguageModel& model, Context& context, const StoredTokenizer& tokenizer,
                           const std::vector<ChoiceItem>& items, comm::ProcessGroup& group);

// Score of a text. Each token except the first is predicted once, from the tokens before it in its
// window.
struct TextScore {
  int64_t tokens = 0;  // number of predicted tokens
  int64_t bytes = 0;   // number of bytes of the text
  double loss = 0;     // sum of -log p of the predicted tokens

  double perplexity() const;     // perplexity per token
  double bits_per_byte() const;  // loss in bits per byte of the text
};
// How score_text() splits a text: into windows of `length` tokens, `batch` of them at a time,
// distributed round-robin over ranks. score_text() is collective.
struct TextWindows {
  int64_t length = 0, batch = 1;
};
TextScore score_text(LanguageModel& model, Context& context, const std::vector<int32_t>& tokens,
                     const TextWindows& windows, comm::ProcessGroup& group);

}  // namespace shale::models
