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
  std::vector<int64_t> shape;  // shape in the file, without padding of the vocabulary
  // True: elements have the requested type of the file. False: F32, which llama.cpp expects for
  // vectors and position embeddings.
  bool as_asked = true;
  // Number of heads whose rotary halves are interleaved: in a head of the file, row 2 i is row i,
  // and row 2 i + 1 is row i + D / 2 of Shale's head. 0: rows keep their order.
  int64_t paired_heads = 0;
};

// GGUF description of a model, without its tokenizer.
struct GgufModel {
  std::string architecture;  // llama.cpp's name of the architecture, such as "llama"
  GgufValues values = {};    // metadata by full key, without "general." and "tokenizer." keys
  std::vector<GgufParameter> parameters = {};
  // Tensors that are not parameters, in f32.
  std::vector<std::pair<GgufTensor, std::vector<float>>> constants = {};
};

// Return tokens and merges as metadata of a GGUF file. gguf_byte_tokenizer(), for models of bytes:
// token b is the character for b in GPT-2's alphabet; the end-of-text token is 0, which separates
// files in training.
GgufValues gguf_byte_tokenizer();
// gguf_tokenizer() takes byte-level BPE whose pre-tokenizer llama.cpp supports
// (tokenizer.ggml.pre), or SentencePiece BPE with byte fallback, for a model of `vocab` tokens; ids
// without a token become unused tokens. Tokens that end texts, and the chat template, come from the
// extras. llama.cpp does not normalise text, so a tokenizer with NFC agrees only on text in NFC.
// Throws DataError, starting with the tokenizer's path, if llama.cpp would tokenize differently,
// for tokens beyond the vocabulary, and without a token that ends a text.
GgufValues gguf_tokenizer(const StoredTokenizer& tokenizer, int64_t vocab,
                          const HfExtras& extras = {});

// Makes a writer of `file`. Nothing is visible before commit(). Parameters must be written whole,
// in the order of `model`. Throws as GgufWriter.
std::unique_ptr<StoredModelWriter> make_gguf_writer(const std::string& file, const GgufModel& model,
                                                    const GgufValues& tokenizer, GgufType type);

}  // namespace shale::models
