#include <algorithm>
#include <unordered_map>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/base/text_file.h"
#include "shale/runtime/data/text/tokenizer/tokenizer_json_internal.h"
#include "shale/runtime/data/text/tokenizer/vocabulary.h"

namespace shale {
namespace {

using tokenizer_internal::JsonNode;
using tokenizer_internal::kMaxTokens;

constexpr JsonLimits kLimits{.max_bytes = kMaxTokenizerBytes};

int32_t read_id(const JsonNode& node) {
  return static_cast<int32_t>(node.integer(0, kMaxTokens - 1));
}

// Reads the section "model": the tokens by id, and the merges, which spell out their tokens.
class BpeReader {
 public:
  BpeReader(const JsonNode& model, TokenizerSpec& spec) : model_(model), spec_(spec) {
    if (model_.has("type")) {
      const std::string type = model_["type"].text();
      if (type != "BPE") model_["type"].fail("BPE, the only supported model");
    }
    refuse_extras();
    read_vocab();
    read_merges();
    spec_.whole_pieces = model_.flag("ignore_merges", false);
    spec_.byte_fallback = model_.flag("byte_fallback", false);
    spec_.fuse_unknown = model_.flag("fuse_unk", false);
    if (model_.has("unk_token")) spec_.unknown = id_of(model_["unk_token"].text(), "unk_token");
  }

 private:
  void refuse_extras() const {
    if (model_.has("dropout") && model_["dropout"].real() != 0) {
      model_["dropout"].fail("no dropout: tokens must not be random");
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (model_.has(key) && !model_[key].text().empty()) model_[key].fail("none");
    }
  }

  void read_vocab() {
    model_["vocab"].each_member([this](const std::string& token, const JsonNode& node) {
      const int32_t id = read_id(node);
      const auto at = static_cast<size_t>(id);
      if (spec_.tokens.size() <= at) spec_.tokens.resize(at + 1);
      if (token.empty()) node.fail("a token that is not empty");
      if (!spec_.tokens[at].empty()) {
        node.fail(
            cat("an id that no other token has; '", excerpt(spec_.tokens[at], 40), "' has it too"));
      }
      spec_.tokens[at] = token;
      ids_[token] = id;
    });
  }

  int32_t id_of(const std::string& token, const char* key) const {
    const auto it = ids_.find(token);
    if (it == ids_.end()) {
      model_[key].fail(cat("tokens of the vocabulary; '", excerpt(token, 40), "' is not one"));
    }
    return it->second;
  }

  void read_merges() {
    model_["merges"].each([this](const JsonNode& node) {
      const auto [left, right] = node.pair();
      const auto rank = static_cast<uint32_t>(spec_.merges.size());
      spec_.merges.push_back({.left = id_of(left, "merges"),
                              .right = id_of(right, "merges"),
                              .result = id_of(left + right, "merges"),
                              .rank = rank});
    });
  }

  const JsonNode& model_;
  TokenizerSpec& spec_;
  std::unordered_map<std::string, int32_t> ids_;
};

void read_added(const JsonNode& node, TokenizerSpec& spec) {
  node.each([&spec](const JsonNode& token) {
    spec.added.push_back({.id = read_id(token["id"]),
                          .text = token["content"].text(),
                          .special = token.flag("special", false),
                          .normalized = token.flag("normalized", false),
                          .single_word = token.flag("single_word", false),
                          .lstrip = token.flag("lstrip", false),
                          .rstrip = token.flag("rstrip", false)});
  });
  std::vector<std::pair<int32_t, std::string_view>> ids;
  for (const AddedToken& token : spec.added) ids.emplace_back(token.id, token.text);
  std::sort(ids.begin(), ids.end());
  const auto same = std::adjacent_find(ids.begin(), ids.end(), [](const auto& a, const auto& b) {
    return a.first == b.first && a.second != b.second;
  });
  if (same != ids.end()) node.fail(cat("ids that differ; two have the id ", same->first));
}

// Converts byte-level tokens from GPT-2's alphabet to bytes. A token with other characters can only
// be an added token.
void spell_bytes(TokenizerSpec& spec) {
  for (std::string& token : spec.tokens) {
    if (std::optional<std::string> bytes = bytes_of_alphabet(token)) token = std::move(*bytes);
  }
}

}  // namespace

TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& source) {
  const Json parsed = Json::parse(text, kLimits, source);
  const JsonNode root(parsed, source, "");
  TokenizerSpec spec;
  spec.source = source;
  BpeReader(root["model"], spec);
  if (root.has("added_tokens")) read_added(root["added_tokens"], spec);
  tokenizer_internal::read_pipeline(root, spec);
  if (spec.of_bytes) spell_bytes(spec);
  return spec;
}

TokenizerSpec read_tokenizer_json(const std::string& path) {
  return parse_tokenizer_json(read_text_file(path, kLimits.max_bytes), path);
}

}  // namespace shale
