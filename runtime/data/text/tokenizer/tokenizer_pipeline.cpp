#include <algorithm>
#include <array>

#include "shale/base/error.h"
#include "shale/base/overloaded.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/text/tokenizer/tokenizer_json_internal.h"

namespace shale::tokenizer_internal {
namespace {

[[noreturn]] void fail_type(const JsonNode& node, std::string_view known) {
  node["type"].fail(cat("one of ", known));
}

// Calls fn for the node. If the node has the type Sequence, calls it for each of its members
// instead.
template <typename Fn>
void each_of(const JsonNode& node, const char* list, const Fn& fn) {
  if (node["type"].text() == "Sequence") {
    node[list].each([&](const JsonNode& item) { each_of(item, list, fn); });
  } else {
    fn(node);
  }
}

// ---- Normalizer ----

void read_normalizer(const JsonNode& node, TokenizerSpec& spec) {
  const std::string type = node["type"].text();
  if (type == "NFC") {
    spec.normalizer.emplace_back(NfcStep{});
  } else if (type == "Prepend") {
    spec.normalizer.emplace_back(PrependStep{node["prepend"].text()});
  } else if (type == "Replace") {
    const JsonNode from = node["pattern"]["String"];
    if (from.text().empty()) from.fail("a string that is not empty");
    spec.normalizer.emplace_back(ReplaceStep{from.text(), node["content"].text()});
  } else {
    fail_type(node, "NFC, Prepend, Replace, Sequence");
  }
}

// ---- Pre-tokenizer ----

SplitBehavior read_behavior(const JsonNode& node) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames = {{
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  }};
  const std::string name = node.text();
  for (const auto& [known, behavior] : kNames) {
    if (known == name) return behavior;
  }
  node.fail("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

void read_split(const JsonNode& node, TokenizerSpec& spec) {
  const SplitBehavior behavior = read_behavior(node["behavior"]);
  const bool invert = node.flag("invert", false);
  const JsonNode pattern = node["pattern"];
  if (pattern.has("String")) {
    const std::string literal = pattern["String"].text();
    if (literal.empty()) pattern["String"].fail("a string that is not empty");
    spec.splits.emplace_back(LiteralSplit{literal, behavior, invert});
    return;
  }
  const JsonNode regex = pattern["Regex"];
  const std::optional<SplitPattern> known = find_pattern(regex.text());
  if (!known) regex.fail("the regular expression of GPT-2, cl100k, Llama 3, Qwen or o200k");
  // All known patterns match the whole text, so pieces are simply the matches.
  const bool keeps_matches =
      behavior == SplitBehavior::kIsolated || (behavior == SplitBehavior::kRemoved && invert);
  if (!keeps_matches) node["behavior"].fail("Isolated, or Removed with invert");
  spec.splits.emplace_back(PatternSplit{*known});
}

MetaspaceSplit read_metaspace(const JsonNode& node) {
  using Prepend = MetaspaceSplit::Prepend;
  MetaspaceSplit split{.replacement = node["replacement"].text()};
  if (split.replacement.empty()) node["replacement"].fail("a character");
  // Before tokenizers 0.15 the key was add_prefix_space. If there is a prepend_scheme, it has
  // priority.
  split.prepend = node.flag("add_prefix_space", true) ? Prepend::kAlways : Prepend::kNever;
  if (node.has("prepend_scheme")) {
    const std::string scheme = node["prepend_scheme"].text();
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      node["prepend_scheme"].fail("always, first or never");
    }
    split.prepend = scheme == "always"  ? Prepend::kAlways
                    : scheme == "first" ? Prepend::kFirst
                                        : Prepend::kNever;
  }
  split.split = node.flag("split", true);
  return split;
}

void read_pre_tokenizer(const JsonNode& node, TokenizerSpec& spec) {
  if (spec.of_bytes) node.fail("no step after ByteLevel");
  const std::string type = node["type"].text();
  if (type == "Split") {
    read_split(node, spec);
  } else if (type == "Digits") {
    spec.splits.emplace_back(DigitSplit{node.flag("individual_digits", false)});
  } else if (type == "Metaspace") {
    spec.splits.emplace_back(read_metaspace(node));
  } else if (type == "ByteLevel") {
    spec.of_bytes = true;
    if (node.flag("add_prefix_space", true)) spec.splits.emplace_back(PrefixSpace{});
    if (node.flag("use_regex", true)) spec.splits.emplace_back(PatternSplit{SplitPattern::kGpt2});
  } else {
    fail_type(node, "Split, Digits, Metaspace, ByteLevel, Sequence");
  }
}

// ---- Post-processor ----

void read_template(const JsonNode& node, TokenizerSpec& spec) {
  bool is_behind = false;
  node["single"].each([&](const JsonNode& item) {
    if (item.has("Sequence")) {
      if (is_behind) item.fail("one sequence");
      is_behind = true;
      return;
    }
    const std::string name = item["SpecialToken"]["id"].text();
    node["special_tokens"][name.c_str()]["ids"].each([&](const JsonNode& id) {
      (is_behind ? spec.behind : spec.before)
          .push_back(static_cast<int32_t>(id.integer(0, INT32_MAX)));
    });
  });
  if (!is_behind) node["single"].fail("a sequence in it");
}

void read_post_processor(const JsonNode& node, TokenizerSpec& spec) {
  const std::string type = node["type"].text();
  if (type == "ByteLevel") return;  // no effect on text, only on offsets
  if (type != "TemplateProcessing") fail_type(node, "ByteLevel, TemplateProcessing, Sequence");
  if (!spec.before.empty() || !spec.behind.empty()) node.fail("one template");
  read_template(node, spec);
}

// ---- Decoder ----

class DecoderReader {
 public:
  explicit DecoderReader(TokenizerSpec& spec) : spec_(spec) {}
  void read(const JsonNode& node) {
    const std::string type = node["type"].text();
    if (type == "ByteLevel") {
      if (!spec_.of_bytes)
        node.fail("no ByteLevel decoder, because the pre-tokenizer is not ByteLevel");
    } else if (type == "Replace") {
      const JsonNode from = node["pattern"]["String"];
      if (from.text().empty()) from.fail("a string that is not empty");
      if (is_fused_ || spec_.decodes_bytes) node.fail("Replace before ByteFallback and Fuse");
      spec_.decoded.push_back({from.text(), node["content"].text()});
    } else if (type == "ByteFallback") {
      spec_.decodes_bytes = true;
    } else if (type == "Fuse") {
      is_fused_ = true;
    } else if (type == "Strip") {
      read_strip(node);
    } else if (type == "Metaspace") {
      const MetaspaceSplit split = read_metaspace(node);
      spec_.decoded.push_back({split.replacement, " "});
      if (split.prepend != MetaspaceSplit::Prepend::kNever) strip(" ", 1);
    } else {
      fail_type(node, "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence");
    }
  }

 private:
  void read_strip(const JsonNode& node) {
    if (!is_fused_) node.fail("Strip after Fuse");
    if (node["stop"].integer(0, INT32_MAX) != 0) node["stop"].fail("0");
    strip(node["content"].text(), node["start"].integer(0, INT32_MAX));
  }
  void strip(std::string content, int64_t most) {
    spec_.strip = std::move(content);
    spec_.strip_most = most;
  }

  TokenizerSpec& spec_;
  bool is_fused_ = false;
};

// ---- Growth ----

// Maximum factor by which all steps together may lengthen a text; each step lengthens the result of
// the previous one. Published tokenizers lengthen text less than 100 times, with fewer than 10
// steps.
constexpr double kMostGrowth = 1024;
// maximum number of steps, because split steps call each other recursively
constexpr size_t kMostSteps = 64;

// Returns the maximum factor by which a step lengthens a non-empty text.
double growth_of(const NormalizeStep& step) {
  return std::visit(Overloaded{[](const NfcStep&) { return 3.0; },
                               [](const PrependStep& s) { return 1.0 + double(s.text.size()); },
                               [](const ReplaceStep& s) {
                                 return std::max(1.0, double(s.to.size()) / double(s.from.size()));
                               }},
                    step);
}
double growth_of(const SplitStep& step) {
  if (std::holds_alternative<PrefixSpace>(step)) return 2;
  const auto* const metaspace = std::get_if<MetaspaceSplit>(&step);
  if (metaspace == nullptr) return 1;
  const bool prepends = metaspace->prepend != MetaspaceSplit::Prepend::kNever;
  return double(metaspace->replacement.size()) * (prepends ? 2 : 1);
}

void check_growth(const TokenizerSpec& spec) {
  const auto check = [&](double growth, size_t steps, const char* of) {
    if (growth <= kMostGrowth && steps <= kMostSteps) return;
    throw DataError(cat(spec.source, ": the ", of, " has ", steps, " steps that make a text up to ",
                        format_number(growth), " times as long, expected at most ", kMostSteps,
                        " steps, and a text at most ", kMostGrowth, " times as long"));
  };
  double encoded = 1, decoded = 1;
  for (const NormalizeStep& step : spec.normalizer) encoded *= growth_of(step);
  for (const SplitStep& step : spec.splits) encoded *= growth_of(step);
  for (const ReplaceStep& step : spec.decoded) decoded *= growth_of(step);
  check(encoded, spec.normalizer.size() + spec.splits.size(), "normalizer with the pre-tokenizer");
  check(decoded, spec.decoded.size(), "decoder");
}

}  // namespace

void read_pipeline(const JsonNode& root, TokenizerSpec& spec) {
  spec.of_bytes = false;
  if (root.has("normalizer")) {
    each_of(root["normalizer"], "normalizers",
            [&](const JsonNode& node) { read_normalizer(node, spec); });
  }
  if (root.has("pre_tokenizer")) {
    each_of(root["pre_tokenizer"], "pretokenizers",
            [&](const JsonNode& node) { read_pre_tokenizer(node, spec); });
  }
  if (root.has("post_processor")) {
    each_of(root["post_processor"], "processors",
            [&](const JsonNode& node) { read_post_processor(node, spec); });
  }
  if (root.has("decoder")) {
    DecoderReader reader(spec);
    each_of(root["decoder"], "decoders", [&](const JsonNode& node) { reader.read(node); });
  }
  if (spec.of_bytes && (!spec.decoded.empty() || spec.decodes_bytes || spec.strip_most > 0)) {
    root["decoder"].fail("ByteLevel, like the pre-tokenizer");
  }
  check_growth(spec);
}

}  // namespace shale::tokenizer_internal
