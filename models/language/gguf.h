#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shale/models/language/family.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/runtime/io/gguf_writer.h"

namespace shale::models {

// Parameter in a GGUF file.
struct GgufParameter {
  std::string parameter;       // Shale's name
  std::string name;            // name in the file
  std::vector<int64_t> shape;  // shape in the file, without padding rows of the vocabulary
  // True: the file stores elements in the type that the user requested. False: in F32, which
  // llama.cpp expects for vectors and position embeddings.
  bool as_asked = true;
  // Number of heads in which the file interleaves the two rotary halves: row 2 i of a head in the
  // file is row i of Shale's head, and row 2 i + 1 is row i + D / 2, with head size D. 0: rows keep
  // their order.
  int64_t paired_heads = 0;
};

// Description of a model for a GGUF file, without its tokenizer.
struct GgufModel {
  std::string architecture;  // llama.cpp's name of the architecture, such as "llama"
  // Metadata; keys are complete, and none begins with "general." or "tokenizer.".
  GgufValues values = {};
  std::vector<GgufParameter> parameters = {};
  // Tensors that are not parameters, in f32.
  std::vector<std::pair<GgufTensor, std::vector<float>>> constants = {};
};

// Returns a byte tokenizer as metadata of a GGUF file: tokens and merges. Token b is the character
// for byte b in GPT-2's alphabet. The end-of-text token is 0, which separates files in training.
GgufValues gguf_byte_tokenizer();
// Returns a tokenizer as metadata of a GGUF file, for a model of `vocab` tokens. Accepts byte-level
// BPE with a pre-tokenizer that llama.cpp supports (tokenizer.ggml.pre), and SentencePiece BPE with
// byte fallback. Ids without a token become unused tokens. The extras determine the tokens that end
// texts, and the chat template.
//
// llama.cpp does not normalise text, so a tokenizer with NFC agrees with it only on text in NFC.
// Throws DataError, starting with the tokenizer's path, if llama.cpp would tokenize differently,
// for tokens beyond the vocabulary, and without a token that ends a text.
GgufValues gguf_tokenizer(const StoredTokenizer& tokenizer, int64_t vocab,
                          const HfExtras& extras = {});

// Makes a writer of `file`. The file is not visible before commit(). Write whole parameters, in the
// order of `model`. Throws as GgufWriter.
std::unique_ptr<StoredModelWriter> make_gguf_writer(const std::string& file, const GgufModel& model,
                                                    const GgufValues& tokenizer, GgufType type);

}  // namespace shale::models
