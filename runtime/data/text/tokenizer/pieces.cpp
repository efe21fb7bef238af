#include "shale/runtime/data/text/tokenizer/pieces.h"

#include <vector>

#include "shale/base/overloaded.h"
#include "shale/runtime/data/text/tokenizer/unicode.h"

namespace shale::tokenizer_internal {
namespace {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at = 0;;) {
    const size_t found = text.find(from, at);
    out += text.substr(at, found - at);
    if (found == text.npos) return out;
    out += to;
    at = found + from.size();
  }
}

struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool matches = false;
};

// Divides the text into spans that match and spans between them. joined() combines neighbours
// later.
template <typename Find>
std::vector<Span> spans_of(std::string_view text, bool invert, const Find& find) {
  std::vector<Span> spans;
  size_t at = 0;
  while (at < text.size()) {
    const Span match = find(at);  // an empty span at the end of the text if there is no match
    if (match.begin > at) spans.push_back({at, match.begin, invert});
    if (match.end > match.begin) spans.push_back({match.begin, match.end, !invert});
    at = match.end;
  }
  return spans;
}

// Combines matches with their neighbours as `behavior` says, like tokenizers' normalized_string.rs.
std::vector<Span> joined(const std::vector<Span>& spans, SplitBehavior behavior) {
  std::vector<Span> out;
  bool join_next = false;
  for (const Span& span : spans) {
    const bool had = !out.empty();
    const bool join = join_next && had;
    join_next = false;
    switch (behavior) {
      case SplitBehavior::kRemoved:
        if (!span.matches) out.push_back(span);
        break;
      case SplitBehavior::kIsolated: out.push_back(span); break;
      case SplitBehavior::kContiguous:
        if (had && out.back().matches == span.matches) {
          out.back().end = span.end;
        } else {
          out.push_back(span);
        }
        break;
      case SplitBehavior::kMergedWithPrevious:
        if (span.matches && had && !out.back().matches) {
          out.back().end = span.end;
          out.back().matches = true;
        } else {
          out.push_back(span);
        }
        break;
      case SplitBehavior::kMergedWithNext:
        if (!span.matches && join) {
          out.back().end = span.end;
        } else {
          out.push_back(span);
        }
        join_next = span.matches;
        break;
    }
  }
  return out;
}

std::vector<Span> literal_spans(std::string_view text, const LiteralSplit& split) {
  return spans_of(text, split.invert, [&](size_t at) -> Span {
    const size_t found = text.find(split.literal, at);
    if (found == text.npos) return {text.size(), text.size()};
    return {found, found + split.literal.size()};
  });
}

std::vector<Span> digit_spans(std::string_view text) {
  const CharTable& table = CharTable::get();
  return spans_of(text, false, [&](size_t at) -> Span {
    while (at < text.size()) {
      const Utf8Char c = decode_utf8(text.data() + at, text.data() + text.size());
      if ((table.of(c.code) & kNumbers) != 0) return {at, at + c.bytes};
      at += c.bytes;
    }
    return {at, at};
  });
}

// Returns the text with spaces replaced by a visible character.
std::string metaspaced(std::string_view text, const MetaspaceSplit& split, bool is_first) {
  using Prepend = MetaspaceSplit::Prepend;
  std::string out = replaced(text, " ", split.replacement);
  const bool wanted =
      split.prepend == Prepend::kAlways || (split.prepend == Prepend::kFirst && is_first);
  if (wanted && !out.starts_with(split.replacement)) out.insert(0, split.replacement);
  return out;
}

}  // namespace

void append_normalized(std::span<const NormalizeStep> steps, std::string_view text,
                       std::string& out) {
  std::string current(text);
  for (const NormalizeStep& step : steps) {
    std::visit(Overloaded{[&](const NfcStep&) {
                            std::string next;
                            append_nfc(current, next);
                            current = std::move(next);
                          },
                          [&](const PrependStep& prepend) {
                            if (!current.empty()) current.insert(0, prepend.text);
                          },
                          [&](const ReplaceStep& replace) {
                            current = replaced(current, replace.from, replace.to);
                          }},
               step);
  }
  out += current;
}

const SplitPattern* Splitter::only_pattern() const {
  if (steps_.size() != 1) return nullptr;
  const auto* split = std::get_if<PatternSplit>(&steps_[0]);
  return split == nullptr ? nullptr : &split->pattern;
}

void Splitter::split_from(size_t step, std::string_view text, bool is_first,
                          const OnPiece& on_piece) const {
  if (text.empty()) return;
  if (step == steps_.size()) return on_piece(text);
  const auto descend = [&](std::string_view part, bool first) {
    split_from(step + 1, part, first, on_piece);
  };
  const auto descend_spans = [&](std::string_view whole, const std::vector<Span>& spans) {
    for (const Span& span : spans) {
      descend(whole.substr(span.begin, span.end - span.begin), is_first && span.begin == 0);
    }
  };
  std::visit(Overloaded{[&](const PatternSplit& split) {
                          for (size_t begin = 0, end; begin < text.size(); begin = end) {
                            end = piece_end(split.pattern, text, begin);
                            descend(text.substr(begin, end - begin), is_first && begin == 0);
                          }
                        },
                        [&](const LiteralSplit& split) {
                          descend_spans(text, joined(literal_spans(text, split), split.behavior));
                        },
                        [&](const DigitSplit& split) {
                          const auto behavior = split.individual ? SplitBehavior::kIsolated
                                                                 : SplitBehavior::kContiguous;
                          descend_spans(text, joined(digit_spans(text), behavior));
                        },
                        [&](const MetaspaceSplit& split) {
                          const std::string changed = metaspaced(text, split, is_first);
                          if (!split.split) return descend(changed, is_first);
                          const LiteralSplit at{split.replacement, SplitBehavior::kMergedWithNext};
                          descend_spans(changed, joined(literal_spans(changed, at), at.behavior));
                        },
                        [&](const PrefixSpace&) {
                          if (text.starts_with(' ')) return descend(text, is_first);
                          descend(" " + std::string(text), is_first);
                        }},
             steps_[step]);
}

}  // namespace shale::tokenizer_internal
