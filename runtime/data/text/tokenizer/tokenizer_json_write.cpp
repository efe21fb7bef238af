#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale {
namespace {

std::string in_quotes(std::string_view text) {
  return json_quote(text, BrokenUtf8::kRefused);
}

Json byte_level(bool with_pattern) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", with_pattern}};
}

Json replace(const std::string& from, const std::string& to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

// ---- Parts of the file ----

Json added_tokens(const TokenizerSpec& spec) {
  std::vector<AddedToken> added = spec.added;
  std::sort(added.begin(), added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  Json list = Json::array();
  for (const AddedToken& token : added) {
    list.push_back({{"id", token.id},
                    {"content", token.text},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  }
  return list;
}

Json normalizer(const TokenizerSpec& spec) {
  Json steps = Json::array();
  for (const NormalizeStep& step : spec.normalizer) {
    if (const auto* prepend = std::get_if<PrependStep>(&step)) {
      steps.push_back({{"type", "Prepend"}, {"prepend", prepend->text}});
    } else if (const auto* replacement = std::get_if<ReplaceStep>(&step)) {
      steps.push_back(replace(replacement->from, replacement->to));
    } else {
      steps.push_back({{"type", "NFC"}});
    }
  }
  if (steps.empty()) return nullptr;
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {"normalizers", steps}};
}

Json pre_tokenizer(const TokenizerSpec& spec) {
  if (!spec.of_bytes && spec.splits.empty()) return nullptr;
  const auto* split =
      spec.splits.size() == 1 ? std::get_if<PatternSplit>(&spec.splits[0]) : nullptr;
  if (split == nullptr || !spec.of_bytes) {
    throw InternalError(
        cat(spec.source, ": cannot be written, expected bytes with one split pattern"));
  }
  if (split->pattern == tokenizer_internal::SplitPattern::kGpt2) return byte_level(true);
  const Json pattern = {{"type", "Split"},
                        {"pattern", {{"Regex", regex_of(split->pattern)}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {pattern, byte_level(false)}}};
}

Json post_processor(const TokenizerSpec& spec) {
  if (spec.of_bytes) return byte_level(true);
  Json single = Json::array(), special = Json::object();
  const auto add = [&](const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) {
      const std::string& text = spec.tokens[static_cast<size_t>(id)];
      single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
      special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    }
  };
  add(spec.before);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add(spec.behind);
  const Json second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  Json pair = single;
  pair.push_back(second);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", special}};
}

Json decoder(const TokenizerSpec& spec) {
  if (spec.of_bytes) return byte_level(true);
  Json steps = Json::array();
  for (const ReplaceStep& step : spec.decoded) steps.push_back(replace(step.from, step.to));
  if (spec.decodes_bytes) steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (spec.strip_most > 0) {
    steps.push_back(
        {{"type", "Strip"}, {"content", spec.strip}, {"start", spec.strip_most}, {"stop", 0}});
  }
  return {{"type", "Sequence"}, {"decoders", steps}};
}

// ---- The model: written directly as text, because objects with hundreds of thousands of items are
// slow ----

std::string spelled(const TokenizerSpec& spec, int32_t id) {
  const std::string& token = spec.tokens[static_cast<size_t>(id)];
  if (!spec.of_bytes) return token;
  std::string text;
  for (const char c : token) text += byte_alphabet()[static_cast<unsigned char>(c)];
  return text;
}

// Throws if the file would be too large. Merges spell out their tokens, so a few long tokens could
// need gigabytes.
void check_size(const TokenizerSpec& spec) {
  size_t bytes = 0;
  for (const std::string& token : spec.tokens) bytes += token.size();
  for (const MergeRule& merge : spec.merges) {
    bytes += spec.tokens[static_cast<size_t>(merge.result)].size();
  }
  if (bytes <= static_cast<size_t>(kMaxTokenizerBytes)) return;
  throw DataError(cat(spec.source, ": its tokenizer.json would have more than ",
                      format_bytes(double(bytes)), ", expected at most ",
                      format_bytes(double(kMaxTokenizerBytes)),
                      "; use a vocabulary with fewer or shorter tokens"));
}

std::string model(const TokenizerSpec& spec) {
  check_size(spec);
  std::string text = R"("type":"BPE","dropout":null,"unk_token":)";
  text += spec.unknown ? in_quotes(spec.tokens[static_cast<size_t>(*spec.unknown)]) : "null";
  text += R"(,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":)";
  text += cat(spec.fuse_unknown, R"(,"byte_fallback":)", spec.byte_fallback, R"(,"ignore_merges":)",
              spec.whole_pieces, R"(,"vocab":{)");
  const char* comma = "";
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id].empty()) continue;
    text += cat(comma, in_quotes(spelled(spec, static_cast<int32_t>(id))), ":", id);
    comma = ",";
  }
  text += R"(},"merges":[)";
  std::vector<MergeRule> merges = spec.merges;
  std::stable_sort(merges.begin(), merges.end(),
                   [](const MergeRule& a, const MergeRule& b) { return a.rank < b.rank; });
  comma = "";
  for (const MergeRule& merge : merges) {
    text += cat(comma, "[", in_quotes(spelled(spec, merge.left)), ",",
                in_quotes(spelled(spec, merge.right)), "]");
    comma = ",";
  }
  return cat("{", text, "]}");
}

}  // namespace

std::string to_tokenizer_json(const TokenizerSpec& spec) {
  return cat(R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)",
             added_tokens(spec).dump(), R"(,"normalizer":)", normalizer(spec).dump(),
             R"(,"pre_tokenizer":)", pre_tokenizer(spec).dump(), R"(,"post_processor":)",
             post_processor(spec).dump(), R"(,"decoder":)", decoder(spec).dump(), R"(,"model":)",
             model(spec), "}\n");
}

}  // namespace shale
