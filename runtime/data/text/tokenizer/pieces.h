#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "shale/runtime/data/text/tokenizer/tokenizer_spec.h"

namespace shale::tokenizer_internal {

// Applies the steps to the text and appends the result.
void append_normalized(std::span<const NormalizeStep> steps, std::string_view text,
                       std::string& out);

// Splits text by several steps; each splits the pieces of the previous one. is_first: true if
// `text` is the beginning of the whole text.
class Splitter {
 public:
  using OnPiece = std::function<void(std::string_view piece)>;
  explicit Splitter(std::span<const SplitStep> steps) : steps_(steps) {}

  // Calls on_piece for each piece, in order. Pieces are never empty. A piece is valid only during
  // the call.
  void split(std::string_view text, bool is_first, const OnPiece& on_piece) const {
    split_from(0, text, is_first, on_piece);
  }
  // Returns the pattern if it is the only step, else null. Callers can then avoid a callback per
  // piece.
  const SplitPattern* only_pattern() const;

 private:
  void split_from(size_t step, std::string_view text, bool is_first, const OnPiece& on_piece) const;

  std::span<const SplitStep> steps_;
};

}  // namespace shale::tokenizer_internal
