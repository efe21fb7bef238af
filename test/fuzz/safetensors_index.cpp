#include "shale/runtime/io/safetensors_index.h"

#include "shale/test/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shale;
  SafetensorsWeightMap map;
  const auto parse = [&] { map = parse_safetensors_index(fuzz::text_of(data, size), "index"); };
  if (!fuzz::accepts<DataError>(parse)) return 0;
  for (const auto& [tensor, file] : map) {
    fuzz::require(!file.empty() && file.front() != '.', "a file is neither hidden nor a folder");
    fuzz::require(file.find('/') == file.npos && file.find('\0') == file.npos,
                  "a file is in the folder");
  }
  fuzz::require(parse_safetensors_index(make_safetensors_index(map, 7), "again") == map,
                "an index that is written again says the same");
  return 0;
}
