#include "shale/models/training/report/metrics.h"

#include "shale/test/fuzz/fuzz.h"

namespace {

std::string text_of(const std::vector<shale::MetricsRow>& rows) {
  std::string text;
  for (const shale::MetricsRow& row : rows) text += to_json_line(row);
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shale;
  std::vector<MetricsRow> rows;
  const auto parse = [&] { rows = parse_metrics(fuzz::text_of(data, size), "metrics.jsonl"); };
  if (!fuzz::accepts<DataError>(parse)) return 0;
  // Printing rounds, so it is the second text that must stay.
  const std::string once = text_of(parse_metrics(text_of(rows), "once"));
  fuzz::require(text_of(parse_metrics(once, "twice")) == once,
                "rows read back as they are written");
  return 0;
}
