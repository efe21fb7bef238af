#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/data/text/tokenizer/tokenizer_spec.h"

namespace shale {

// Converts text to tokens and back. Thread-safe if each thread has its own TokenEncoder.
class Tokenizer {
 public:
  // Throws DataError, which begins with the spec's source, if a token is missing: that of a byte,
  // or one that a merge needs.
  explicit Tokenizer(TokenizerSpec spec);
  // Reads a tokenizer.json. Throws MissingInputError, DataError.
  static Tokenizer load(const std::string& path);
  ~Tokenizer();
  Tokenizer(Tokenizer&& other) noexcept;

  const TokenizerSpec& spec() const;
  int64_t vocab_size() const;  // highest id + 1
  // Returns the id of the token with this text: an added token, else a token of the model. nullopt:
  // there is none.
  std::optional<int32_t> find(std::string_view text) const;

  bool has(int32_t id) const;  // true if a token has this id

  // Returns the text of the tokens as bytes. If a character is divided between tokens, it is whole
  // in the result. show_special: includes special tokens. Throws DataError for an id without a
  // token.
  std::string decode(std::span<const int32_t> ids, bool show_special = true) const;

  // Puts the tokens that belong before a text at the beginning of `ids`, unless they are there.
  // Returns the number of inserted tokens.
  size_t begin_text(std::vector<int32_t>& ids) const;

  // Returns the first position at or after `from` where text can be cut without changing its
  // tokens, if special tokens are not encoded. Returns the text's size if there is none. For
  // tokenizers whose tokens may contain line ends, there is none.
  size_t find_cut(std::string_view text, size_t from) const;

  struct State;
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<const State> state_;
};

struct EncodeOptions {
  // True: text that spells a special token is encoded as that token. False: it is encoded as
  // ordinary text, so that text cannot contain, for example, an end-of-document token.
  bool special_tokens = false;
  // true: adds the begin and end tokens that tokenizer.json puts around a text
  bool add_around = false;
  // true: this is the beginning of the whole text; false: it follows a special token
  bool is_first = true;
};

// Encodes text, with memory that it reuses. Each thread needs its own object.
class TokenEncoder {
 public:
  // The tokenizer must outlive the encoder.
  explicit TokenEncoder(const Tokenizer& tokenizer);
  ~TokenEncoder();
  TokenEncoder(TokenEncoder&& other) noexcept;

  // Appends the tokens of a text. Byte-level tokenizers, and those with byte fallback, preserve
  // bytes that are not UTF-8. Throws DataError for a character without a token if the tokenizer has
  // no fallback, and for 2^31 bytes or more.
  void append(std::string_view text, const EncodeOptions& options, std::vector<int32_t>& out);
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {});

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Decodes tokens one at a time. Its output always ends with a complete character.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool show_special = true)
      : tokenizer_(tokenizer), show_special_(show_special), strips_(tokenizer.spec().strip_most) {}

  // Returns the characters that this token completes. Bytes that cannot become a character are
  // returned unchanged. Throws like Tokenizer::decode.
  std::string push(int32_t id);
  // Returns the remaining bytes, an incomplete character.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool show_special_;
  // number of times that spec.strip may still be removed from the start of the text
  int64_t strips_;
  std::string pending_;
};

}  // namespace shale
