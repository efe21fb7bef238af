#pragma once

#include <vector>

#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/runtime/data/tokens/dataset_internal.h"

namespace shale::data_internal {

// Tokens of text documents, each after begin_of_document(), in newly allocated memory; the result
// does not depend on the number of threads. Documents are cut at positions that do not change
// tokens, so that several threads can share one long text. Throws DataError, which begins with a
// document's name, like TokenEncoder::append.
std::vector<TokenPiece> tokenize_documents(const std::vector<TokenPiece>& documents,
                                           const StoredTokenizer& tokenizer, int threads,
                                           const OnReading& on_reading);

// Returns the bytes per token for a vocabulary of this size: 2 or 4.
TokenWidth token_width(int64_t vocab_size);

}  // namespace shale::data_internal
