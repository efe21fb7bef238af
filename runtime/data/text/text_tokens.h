#pragma once

#include <vector>

#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/runtime/data/tokens/dataset_internal.h"

namespace shale::data_internal {

// Returns the tokens of text documents in newly allocated memory, each document after
// begin_of_document(). Long documents are cut where this does not change tokens, so that several
// threads can share one document. The result does not depend on the number of threads. Throws
// DataError like TokenEncoder::append; the message begins with the document's name.
std::vector<TokenPiece> tokenize_documents(const std::vector<TokenPiece>& documents,
                                           const StoredTokenizer& tokenizer, int threads,
                                           const OnReading& on_reading);

// Returns the number of bytes per token for a vocabulary of this size: 2 or 4.
TokenWidth token_width(int64_t vocab_size);

}  // namespace shale::data_internal
