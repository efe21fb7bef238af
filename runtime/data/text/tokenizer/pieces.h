#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "shale/runtime/data/text/tokenizer/tokenizer_spec.h"

namespace shale::tokenizer_internal {

// Appends the text after these steps.
void append_normalized(std::span<const NormalizeStep> steps, std::string_view text,
                       std::string& out);

// Divides text by steps, one inside another. `is_first`: the text begins where the whole text does.
class Splitter {
 public:
  using OnPiece = std::function<void(std::string_view piece)>;
  explicit Splitter(std::span<const SplitStep> steps) : steps_(steps) {}

  // Calls on_piece for each piece in order; none is empty. A piece is valid during the call.
  void split(std::string_view text, bool is_first, const OnPiece& on_piece) const {
    split_from(0, text, is_first, on_piece);
  }
  // The one step, if it is a pattern: then callers can go without a call per piece.
  const SplitPattern* only_pattern() const;

 private:
  void split_from(size_t step, std::string_view text, bool is_first, const OnPiece& on_piece) const;

  std::span<const SplitStep> steps_;
};

}  // namespace shale::tokenizer_internal
