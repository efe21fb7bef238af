// Reads documents from JSON lines, and from text.
#include "shale/runtime/data/corpus/documents.h"

#include "shale/runtime/data/text/tokenizer/unicode.h"
#include "shale/test/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shale;
  if (size == 0) return 0;
  const CorpusFile file{.name = "lines", .path = "lines", .is_jsonl = data[0] != 't'};
  const DocumentBatch batch{.begin = {}, .text = std::string(fuzz::text_of(data, size))};
  fuzz::accepts<DataError>([&] {
    for_each_document(batch, file, "text", [](std::string_view text) {
      const bool is_text = tokenizer_internal::find_broken_utf8(text) == text.npos;
      fuzz::require(!text.empty() && is_text, "documents are text");
    });
  });
  return 0;
}
