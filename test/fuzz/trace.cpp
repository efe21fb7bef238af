#include "shale/base/error.h"
#include "shale/models/training/report/trace_file.h"
#include "shale/models/views/trace_report.h"
#include "shale/models/views/trace_svg.h"
#include "shale/test/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shale;
  std::vector<TraceRecord> ranks;
  const auto parse = [&] { ranks = models::parse_trace(fuzz::text_of(data, size), "trace"); };
  if (!fuzz::accepts<DataError>(parse)) return 0;
  fuzz::accepts<DataError>([&] {
    for (const char c : models::trace_report(ranks)) {
      fuzz::require(c == '\n' || static_cast<unsigned char>(c) >= 0x20,
                    "a report has no control characters but newlines");
    }
  });
  for (const int64_t step : {0, 1}) {
    fuzz::accepts<ConfigError>([&] { models::trace_svg(ranks, step); });
  }
  return 0;
}
