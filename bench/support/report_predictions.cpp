#include <optional>

#include "shale/base/text.h"
#include "shale/bench/support/report_rows.h"
#include "shale/bench/support/table.h"

namespace shale::bench {
namespace {

// Returns the measured TFLOP/s of a row.
std::optional<double> measured_speed(const std::vector<Json>& documents, const std::string& name) {
  for (const Json& document : documents) {
    if (!is_program(document, "bench_kernels")) continue;
    for (const Json& row : document["rows"]) {
      const double us = number(row, "time_us");
      if (word(row, "name") == name && us > 0) return number(row, "gflop") / us * 1e3;
    }
  }
  return {};
}

std::string verdict(double measured, double low, double high) {
  const double middle = (low + high) / 2;
  const std::string ratio = percent(measured / middle);
  if (measured < low) return ratio + ", below";
  return measured > high ? ratio + ", above" : ratio;
}

}  // namespace

std::string predictions_section(const std::vector<Json>& documents) {
  Table table({"kernel", "predicted", "measured", "of the middle", "from"});
  for (const Json& document : documents) {
    if (!is_program(document, "predictions")) continue;
    for (const Json& row : document["rows"]) {
      const double low = number(row, "tflops_low"), high = number(row, "tflops_high");
      const bool stands = high > 0;  // else it is withdrawn, and only the measurement is reported
      const auto measured = measured_speed(documents, word(row, "name"));
      table.add({word(row, "name"),
                 stands ? cat(fixed(low, 0), " to ", fixed(high, 0), " TFLOP/s") : "withdrawn",
                 measured ? fixed(*measured, 1) : "not measured",
                 measured && stands ? verdict(*measured, low, high) : "", word(row, "why")});
    }
  }
  if (table.empty()) return "";
  return "\n## Predicted and measured\n\n" + table.markdown();
}

}  // namespace shale::bench
