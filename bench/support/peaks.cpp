#include "shale/bench/support/peaks.h"

#include <fstream>
#include <string>

#include "shale/base/parse.h"

namespace shale::bench {

bool Peaks::compute_bound(const kernels::Cost& cost, DType dtype) const {
  const auto found = gemm.find(dtype);
  if (found == gemm.end() || cost.flops == 0) return false;
  return cost.flops / found->second >= cost.bytes() / read_write();
}

double Peaks::bound_seconds(const kernels::Cost& cost, DType dtype) const {
  if (compute_bound(cost, dtype)) return cost.flops / gemm.at(dtype);
  // Reading alone is faster than reading and writing.
  const bool only_reads = read > 0 && cost.written_bytes < 0.1 * cost.read_bytes;
  const double speed = only_reads ? read : read_write();
  return speed > 0 ? cost.bytes() / speed : 0;
}

int64_t last_level_cache_bytes() {
  // sysconf() reports the whole chip's cache, but a virtual machine may have only a part of it.
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  std::string text;  // a text such as "32768K"
  if (!(file >> text) || text.back() != 'K') return 0;
  text.pop_back();
  return parse_int(text).value_or(0) * 1024;
}

}  // namespace shale::bench
