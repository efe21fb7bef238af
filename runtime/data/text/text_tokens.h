#pragma once

#include <vector>

#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/runtime/data/tokens/dataset_internal.h"

namespace shale::data_internal {

// The tokens of documents of text, each behind begin_of_document(), in memory of their own; bytes
// do not depend on the number of threads. Documents are cut where that changes no token, so that
// one long text is many threads' work. Throws DataError, starting with a document's name, as
// TokenEncoder::append.
std::vector<TokenPiece> tokenize_documents(const std::vector<TokenPiece>& documents,
                                           const StoredTokenizer& tokenizer, int threads,
                                           const OnReading& on_reading);

// Bytes of a token of a vocabulary of this size: 2 or 4.
TokenWidth token_width(int64_t vocab_size);

}  // namespace shale::data_internal
