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

// Text as tokens, and back. Safe to use from several threads, each with an encoder of its own.
class Tokenizer {
 public:
  // Throws DataError, starting with the spec's source, if tokens that it needs are missing: of a
  // byte, or of an id that a merge names.
  explicit Tokenizer(TokenizerSpec spec);
  // Of a tokenizer.json. Throws MissingInputError, DataError.
  static Tokenizer load(const std::string& path);
  ~Tokenizer();
  Tokenizer(Tokenizer&& other) noexcept;

  const TokenizerSpec& spec() const;
  int64_t vocab_size() const;  // the largest id + 1
  // The token of this text: an added one, else one of the model. None if there is no such token.
  std::optional<int32_t> find(std::string_view text) const;

  bool has(int32_t id) const;  // whether there is a token of this id

  // The bytes of the tokens; text whose characters were cut apart becomes whole again. Special
  // tokens are shown if asked for. Throws DataError for an id that no token has.
  std::string decode(std::span<const int32_t> ids, bool show_special = true) const;

  // Puts the tokens that belong before a text in front of a text's tokens, unless these begin with
  // them. Returns how many it has put there.
  size_t begin_text(std::vector<int32_t>& ids) const;

  // The first place at or behind `from` at which text can be cut so that the tokens of its parts
  // are those of the whole, where text that spells special tokens does not become them; the text's
  // size if there is none, as in tokenizers whose tokens cross lines.
  size_t find_cut(std::string_view text, size_t from) const;

  struct State;
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<const State> state_;
};

struct EncodeOptions {
  // Whether text that spells a special token becomes it. Without, nobody who writes text can write
  // the end of a document.
  bool special_tokens = false;
  bool add_around = false;  // the tokens that the file puts around a text: begin, end
  bool is_first = true;     // the text begins where the whole text does, not behind a special token
};

// Encodes with the memory that it keeps: one of each thread.
class TokenEncoder {
 public:
  // The tokenizer outlives the encoder.
  explicit TokenEncoder(const Tokenizer& tokenizer);
  ~TokenEncoder();
  TokenEncoder(TokenEncoder&& other) noexcept;

  // Appends the tokens of a text. Bytes that are not UTF-8 keep their value with tokenizers of
  // bytes and with byte fallback. Throws DataError for a character that is no token where the
  // tokenizer has nothing for such characters; DataError for 2^31 bytes or more.
  void append(std::string_view text, const EncodeOptions& options, std::vector<int32_t>& out);
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {});

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Decodes tokens as they come: what it gives ends with a whole character.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool show_special = true)
      : tokenizer_(tokenizer), show_special_(show_special), strips_(tokenizer.spec().strip_most) {}

  // The characters that are complete with this token. Bytes that can become no character are given
  // as they are. Throws as Tokenizer::decode.
  std::string push(int32_t id);
  // What is left: the beginning of a character.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool show_special_;
  int64_t strips_;  // of the text's start that may still come
  std::string pending_;
};

}  // namespace shale
