#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "shale/runtime/data/text/tokenizer/tokenizer_spec.h"

namespace shale::tokenizer_internal {

// Appends the text after applying these steps.
void append_normalized(std::span<const NormalizeStep> steps, std::string_view text,
                       std::string& out);

// Splits text by steps, one after another. is_first: `text` is the beginning of the whole text.
class Splitter {
 public:
  using OnPiece = std::function<void(std::string_view piece)>;
  explicit Splitter(std::span<const SplitStep> steps) : steps_(steps) {}

  // Calls on_piece for each piece in order; pieces are not empty and valid only during the call.
  void split(std::string_view text, bool is_first, const OnPiece& on_piece) const {
    split_from(0, text, is_first, on_piece);
  }
  // Returns the pattern if it is the only step (callers can avoid a callback per piece), else null.
  const SplitPattern* only_pattern() const;

 private:
  void split_from(size_t step, std::string_view text, bool is_first, const OnPiece& on_piece) const;

  std::span<const SplitStep> steps_;
};

}  // namespace shale::tokenizer_internal
