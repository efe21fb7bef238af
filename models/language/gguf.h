#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shale/models/language/family.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/runtime/io/gguf_writer.h"

namespace shale::models {

// A parameter in a GGUF file.
struct GgufParameter {
  std::string parameter;       // under Shale's name
  std::string name;            // in the file
  std::vector<int64_t> shape;  // as in the file: the vocabulary is not padded
  // Whether its elements have the type that the file is asked for; else F32, as llama.cpp wants
  // vectors and the embedding of positions.
  bool as_asked = true;
  // Rotary halves become neighbours, in each of so many heads: row 2 i is row i, row 2 i + 1 is row
  // i + D / 2. 0: rows stay where they are.
  int64_t paired_heads = 0;
};

// What a family's models are in GGUF files, besides their tokenizer.
struct GgufModel {
  std::string architecture;  // "llama"
  GgufValues values = {};    // without "general." and "tokenizer."; names are whole
  std::vector<GgufParameter> parameters = {};
  // Tensors that are no parameters, in f32.
  std::vector<std::pair<GgufTensor, std::vector<float>>> constants = {};
};

// Tokens and merges, as keys of a GGUF file.
//
// Of models of bytes: token b is the character that stands for b in GPT-2's alphabet; the end of a
// text is 0, which joins files in training.
GgufValues gguf_byte_tokenizer();
// Of byte-level BPE that splits text in a way for which llama.cpp has a name (tokenizer.ggml.pre),
// or of SentencePiece's BPE with byte fallback, for a model of `vocab` tokens; ids that no token
// has become unused ones. The tokens that end texts, and the chat template, are those of the
// extras. llama.cpp does not normalise text, so that a tokenizer with NFC has equal tokens of text
// in NFC. Throws DataError, starting with the tokenizer's path, for what llama.cpp would make other
// tokens of, for tokens beyond the vocabulary, and without an end of a text.
GgufValues gguf_tokenizer(const StoredTokenizer& tokenizer, int64_t vocab,
                          const HfExtras& extras = {});

// Writes `file`. Nothing is visible before commit(). Parameters come whole, in the order of
// `model`. Throws as GgufWriter.
std::unique_ptr<StoredModelWriter> make_gguf_writer(const std::string& file, const GgufModel& model,
                                                    const GgufValues& tokenizer, GgufType type);

}  // namespace shale::models
