#include "shale/runtime/data/chat/chat_examples.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/kernels/loss.h"
#include "shale/runtime/data/chat/line_keys.h"
#include "shale/runtime/data/content_scan.h"
#include "shale/runtime/data/corpus/documents.h"
#include "shale/runtime/data/jinja/python_text.h"
#include "shale/runtime/data/split.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/runtime/io/in_parallel.h"

namespace shale {
namespace {

constexpr JsonLimits kLineLimits{.max_bytes = int64_t{64} << 20};

using Counts = std::map<std::string, int64_t>;

// What was found in lines, with the number of lines for each.
struct Findings {
  Counts ignored;  // keys that are not used
  Counts marks;    // special tokens that texts spell
};

// Converts one line to one or two examples.
class LineReader {
 public:
  LineReader(const ExampleOptions& options, std::string place, ChatEncoder& encoder,
             Findings& found)
      : options_(options), place_(std::move(place)), encoder_(encoder), found_(found) {}

  std::vector<MaskedTokens> read(std::string_view line) {
    const Json object = Json::parse(line, kLineLimits, place_);
    if (!object.is_object()) fail("is not a JSON object");
    std::vector<MaskedTokens> examples;
    try {
      if (options_.kind == ExampleKind::kPreferences) {
        const std::array both = {&member(object, "chosen"), &member(object, "rejected")};
        check_keys(object, "chosen", {"rejected", "prompt"});
        if (both[0]->is_array() != both[1]->is_array()) {
          fail("one of 'chosen' and 'rejected' is a list of messages, expected both or none");
        }
        const size_t shared = shared_messages(*both[0], *both[1]);
        for (const size_t i : {0, 1}) {
          std::vector<MaskedTokens> turns =
              continued(object, *both[i], i == 0 ? "chosen" : "rejected", shared);
          if (turns.size() != 1) {
            fail(
                "the chat template writes an earlier turn differently when later turns follow; "
                "give each example only one turn of the assistant");
          }
          examples.push_back(std::move(turns.front()));
        }
      } else {
        examples = answers(object);
      }
    } catch (const DataError& error) {
      const std::string what = error.what();
      if (what.starts_with(place_)) throw;
      throw DataError(cat(place_, ": ", what));
    }
    for (const MaskedTokens& example : examples) check(example);
    return examples;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(cat(place_, ": ", what));
  }

  // Throws for a line of unknown form. For common forms, the message has a command that converts
  // them.
  [[noreturn]] void fail_unknown(const Json& object) const {
    const char* const layout = object.contains("instruction")     ? "alpaca"
                               : object.contains("conversations") ? "sharegpt"
                                                                  : "";
    const std::string convert =
        *layout == '\0' ? std::string()
                        : cat("; convert it with python3 -m shale.data --from ", layout, " ",
                              place_.substr(0, place_.rfind(':')), " | train_lm --data -");
    fail(cat("expected 'messages', 'prompt' with 'completion', or 'text', found ",
             keys_text(object), convert));
  }

  const Json& member(const Json& object, const char* key) const {
    if (object.contains(key)) return object[key];
    fail(cat("no '", key, "'"));
  }
  std::string text(const Json& value, const char* key) const {
    if (!value.is_string())
      fail(cat("'", key, "' is ", excerpt(value.dump()), ", expected a string"));
    return value.text();
  }
  // Checks the keys of a line. If the value of `key` is a list, the line is a conversation and may
  // have the key "tools".
  void check_keys(const Json& object, std::string_view key, std::vector<std::string_view> more) {
    more.insert(more.begin(), key);
    if (object.contains(key) && object[key].is_array()) more.push_back("tools");
    check_line_keys(object, more, LineUse::kExample, found_.ignored);
  }

  std::vector<MaskedTokens> conversation(const std::vector<ChatMessage>& messages, size_t first,
                                         const Json& tools) {
    std::vector<MaskedTokens> examples = encoder_.conversation(messages, first, tools);
    for (const char* key : {"name", "tool_call_id"}) {
      if (!encoder_.writes(key, messages, tools)) ++found_.ignored[cat(key, " of messages")];
    }
    return examples;
  }

  std::vector<MaskedTokens> answers(const Json& object) {
    if (object.contains("messages")) {
      check_keys(object, "messages", {});
      return conversation(read_chat_messages(object, "messages"), 0, read_tools(object));
    }
    if (object.contains("completion")) {
      check_keys(object, "completion", {"prompt"});
      return continued(object, object["completion"], "completion", 0);
    }
    if (!object.contains("text")) fail_unknown(object);
    check_keys(object, "text", {});
    return written("", text(object["text"], "text"));
  }

  // Returns the number of messages with which both answers begin. The last message of each answer
  // does not count.
  static size_t shared_messages(const Json& a, const Json& b) {
    if (!a.is_array() || !b.is_array()) return 0;
    size_t count = 0;
    while (count + 1 < std::min(a.size(), b.size()) && a[count] == b[count]) ++count;
    return count;
  }

  // Puts a prompt before an answer that is a list of messages. Omits messages of the prompt that
  // the answer repeats. Returns the number of prompt messages in the result.
  static size_t put_before(std::vector<ChatMessage> prompt, std::vector<ChatMessage>& answer) {
    const auto is_same = [](const ChatMessage& a, const ChatMessage& b) {
      const auto stripped = [](const ChatMessage& message) {
        return jinja::strip(message.content, jinja::Side::kBoth);
      };
      return a.role == b.role && stripped(a) == stripped(b) && a.more == b.more;
    };
    const auto is_system = [](const ChatMessage& message) { return message.role == "system"; };
    const auto turns = std::ranges::find_if_not(answer, is_system);
    if (answer.end() - turns > std::ssize(prompt) &&
        std::equal(prompt.begin(), prompt.end(), turns, is_same)) {
      return static_cast<size_t>(turns - answer.begin()) + prompt.size();
    }
    // The answer may be a whole conversation in which the prompt is a later user turn.
    if (prompt.size() == 1 && prompt.front().role == "user") {
      const auto turn = std::ranges::find_if(turns, answer.end() - 1, [&](const ChatMessage& one) {
        return is_same(one, prompt.front());
      });
      if (turn != answer.end() - 1) return static_cast<size_t>(turn - answer.begin()) + 1;
      if (turns != answer.end() && turns->role == "user") {
        throw DataError("the answer begins with a user message; put it into 'prompt'");
      }
    }
    const size_t size = prompt.size();
    size_t repeated = std::min(size, answer.size() - 1);
    while (!std::equal(prompt.end() - static_cast<ptrdiff_t>(repeated), prompt.end(),
                       answer.begin(), is_same)) {
      --repeated;
    }
    prompt.insert(prompt.end(), answer.begin() + static_cast<ptrdiff_t>(repeated), answer.end());
    answer = std::move(prompt);
    return size;
  }

  // Makes the examples of a prompt and its answer. The first `shared` messages of the answer are
  // not trained on.
  std::vector<MaskedTokens> continued(const Json& object, const Json& answer, const char* key,
                                      size_t shared) {
    if (answer.is_array()) {
      std::vector<ChatMessage> all = read_chat_messages(object, key), prompt;
      const size_t own = all.size();
      // If the two answers do not begin with the same messages, the line must have the key
      // "prompt".
      if (shared == 0) member(object, "prompt");
      if (object.contains("prompt")) prompt = read_chat_messages(object, "prompt");
      const size_t first = put_before(std::move(prompt), all);
      return conversation(all, std::max(first, all.size() - own + shared), read_tools(object));
    }
    return written(text(member(object, "prompt"), "prompt"), text(answer, key));
  }

  std::vector<MaskedTokens> written(const std::string& before, const std::string& answer) {
    const std::optional<int32_t> end = options_.tokenizer->end_of_document;
    if (!end) fail(cat(options_.tokenizer->path, " has no end-of-text token"));
    const std::string_view mark = encoder_.spelled(before + answer);
    if (!mark.empty()) ++found_.marks[std::string(mark)];
    MaskedTokens example = encoder_.text(before, answer);
    example.append({*end}, true);
    return {example};
  }

  // Throws if there is nothing to train on. The first token does not count: nothing precedes it, so
  // it cannot be predicted.
  void check(const MaskedTokens& example) const {
    const auto& flags = example.is_answer;
    const bool has_answer =
        flags.size() > 1 && std::find(flags.begin() + 1, flags.end(), 1) != flags.end();
    if (!has_answer)
      fail("nothing to train on, expected a message of the assistant or a completion");
  }

  const ExampleOptions& options_;
  const std::string place_;
  ChatEncoder& encoder_;
  Findings& found_;
};

struct Line {
  std::vector<MaskedTokens> examples;
  uint32_t hash = 0;
  bool is_validation = false;  // true: the file name marks validation data
};

// Results of a batch of lines.
struct Block {
  std::vector<Line> lines;
  Findings found;
};

std::vector<DocumentBatch> read_batches(const std::vector<CorpusFile>& files) {
  BatchReader reader(files, [](std::string_view text, size_t) { return text.size(); });
  std::vector<DocumentBatch> batches;
  for (DocumentBatch batch; reader.next(batch);) batches.push_back(std::move(batch));
  return batches;
}

std::vector<Block> encode(const std::vector<CorpusFile>& files,
                          const std::vector<DocumentBatch>& batches,
                          const ExampleOptions& options) {
  const auto workers = static_cast<size_t>(std::max(options.threads, 1));
  std::vector<std::unique_ptr<ChatEncoder>> encoders(workers);
  std::vector<Block> blocks(batches.size());
  std::mutex telling;
  encoders.front() = std::make_unique<ChatEncoder>(options.tokenizer, options.style);
  in_parallel(batches.size(), workers, [&](size_t i, size_t worker) {
    const CorpusFile& file = files[static_cast<size_t>(batches[i].begin.file)];
    if (options.on_reading) {
      const std::lock_guard lock(telling);
      options.on_reading(file.path);
    }
    std::unique_ptr<ChatEncoder>& encoder = encoders[worker];
    if (encoder == nullptr) {
      encoder = std::make_unique<ChatEncoder>(options.tokenizer, options.style);
    }
    for_each_line(batches[i], file, [&](std::string_view line, const std::string& place) {
      const uint32_t crc = crc32c(std::as_bytes(std::span(line)));
      LineReader reader(options, place, *encoder, blocks[i].found);
      blocks[i].lines.push_back({.examples = reader.read(line),
                                 .hash = data_internal::split_hash(crc, std::ssize(line)),
                                 .is_validation = file.is_validation});
    });
  });
  return blocks;
}

// Formats counts: "; ignored keys: id (in 3 lines), source (in 12)".
std::string describe(const std::vector<Block>& blocks, const char* what, Counts Findings::*counts) {
  constexpr size_t kMost = 12;
  Counts all;
  for (const Block& block : blocks) {
    for (const auto& [name, count] : block.found.*counts) all[name] += count;
  }
  std::string text;
  size_t number = 0;
  for (const auto& [name, count] : all) {
    if (number == kMost) return text + cat(" and ", all.size() - kMost, " more");
    text += number++ == 0 ? cat("; ", what, ": ", excerpt(name), " (in ", count, " lines)")
                          : cat(", ", excerpt(name), " (in ", count, ")");
  }
  return text;
}

// Returns the JSONL files for training and validation. A file that the user names must have JSON
// lines.
std::vector<CorpusFile> find_files(const ExampleOptions& options,
                                   data_internal::SkippedFiles& skipped) {
  std::vector<CorpusFile> files = list_corpus(options.paths, "text", &skipped);
  for (const CorpusFile& file : files) {
    const bool is_named = file.name == file.path;
    if (file.is_jsonl || !is_named) continue;
    throw DataError(cat(file.path, ": expected jsonl, with one example per line"));
  }
  skipped.no_lines += static_cast<int64_t>(
      std::erase_if(files, [](const CorpusFile& file) { return !file.is_jsonl; }));
  if (files.empty()) {
    throw DataError(
        cat(options.paths.front(), ": no jsonl file in this folder", skipped.describe()));
  }
  divide_corpus(files, options.paths.front(), skipped);
  return files;
}

}  // namespace

// ---- ExampleStore ----

void ExampleStore::add(const MaskedTokens& example) {
  tokens_.insert(tokens_.end(), example.tokens.begin(), example.tokens.end());
  is_answer_.insert(is_answer_.end(), example.is_answer.begin(), example.is_answer.end());
  ends_.push_back(std::ssize(tokens_));
}

int64_t ExampleStore::begin_of(int64_t example) const {
  return example == 0 ? 0 : ends_.at(static_cast<size_t>(example) - 1);
}

int64_t ExampleStore::length(int64_t example) const {
  return ends_.at(static_cast<size_t>(example)) - begin_of(example) - 1;
}

void ExampleStore::read(int64_t example, int64_t begin, std::span<int32_t> inputs,
                        std::span<int32_t> targets) const {
  const auto at = static_cast<size_t>(begin_of(example) + begin);
  for (size_t t = 0; t < inputs.size(); ++t) {
    inputs[t] = tokens_[at + t];
    targets[t] = is_answer_[at + t + 1] != 0 ? tokens_[at + t + 1] : kernels::kIgnoreTarget;
  }
}

int64_t ExampleStore::targets(int64_t example, int64_t begin, int64_t count) const {
  const auto first = is_answer_.begin() + begin_of(example) + begin + 1;
  return std::count(first, first + count, 1);
}

void ExampleStore::exchange(data_internal::PackedValues& all) {
  exchange_all(all, tokens_, is_answer_, ends_);
}

namespace data_internal {

static void exchange(PackedValues& all, std::shared_ptr<const ExampleStore>& store) {
  bool is_there = store != nullptr;
  exchange(all, is_there);
  if (!is_there) return;
  const auto whole = all.unpacks() ? std::make_shared<ExampleStore>()
                                   : std::const_pointer_cast<ExampleStore>(store);
  whole->exchange(all);
  store = whole;
}

static void exchange(PackedValues& all, ExampleSplits& splits) {
  exchange_all(all, splits.train, splits.val, splits.examples, splits.note, splits.fingerprint,
               splits.checksum);
}

}  // namespace data_internal

static ExampleSplits read_here(const ExampleOptions& options) {
  data_internal::SkippedFiles skipped;
  const std::vector<CorpusFile> files = find_files(options, skipped);
  ExampleSplits splits;
  bool by_name = false;
  for (const CorpusFile& file : files) {
    by_name = by_name || file.is_validation;
    splits.fingerprint = data_internal::mix_fingerprint(
        splits.fingerprint, std::filesystem::path(file.name).filename().string(), file.bytes);
  }
  const std::vector<DocumentBatch> batches = read_batches(files);
  for (const DocumentBatch& batch : batches) {
    const uint32_t crc = crc32c(std::as_bytes(std::span(batch.text)));
    splits.checksum = data_internal::mix_checksum(splits.checksum, crc);
  }
  const std::vector<Block> blocks = encode(files, batches, options);
  auto train = std::make_shared<ExampleStore>(), val = std::make_shared<ExampleStore>();
  std::vector<uint32_t> hashes;
  for (const Block& block : blocks) {
    for (const Line& line : block.lines) hashes.push_back(line.hash);
  }
  splits.examples = std::ssize(hashes);
  const std::vector<bool> held_out =
      data_internal::hold_out(hashes, by_name ? 0 : options.val_fraction);
  size_t number = 0;
  for (const Block& block : blocks) {
    for (const Line& line : block.lines) {
      const bool is_val = held_out[number++] || line.is_validation;
      for (const MaskedTokens& example : line.examples) (is_val ? *val : *train).add(example);
    }
  }
  splits.note = cat(val->size() == 0 ? ""
                    : by_name        ? ", chosen by file name"
                                     : ", chosen by a hash of each",
                    skipped.describe(), describe(blocks, "ignored keys", &Findings::ignored),
                    describe(blocks, "special tokens that stay text", &Findings::marks));
  if (train->size() == 0) {
    throw DataError(cat(options.paths.front(), ": no examples are left for training, out of ",
                        splits.examples));
  }
  splits.train = std::move(train);
  if (val->size() > 0) splits.val = std::move(val);
  return splits;
}

ExampleSplits read_examples(const ExampleOptions& options) {
  return data_internal::once_per_host<ExampleSplits>(options.once,
                                                     [&] { return read_here(options); });
}

}  // namespace shale
