#include "shale/runtime/amp/precision.h"

#include <string_view>

#include "shale/base/error.h"

namespace shale::amp {
namespace {

bool is_compute(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

void require(bool ok, std::string_view what, DType found, std::string_view want) {
  if (!ok)
    throw ConfigError(cat("precision: ", what, " is ", dtype_name(found), ", expected ", want));
}

}  // namespace

void check(const Precision& precision) {
  require(is_compute(precision.compute), "compute", precision.compute, "fp32, bf16 or fp16");
  require(precision.reduce == DType::kF32 || precision.reduce == DType::kBF16, "reduce",
          precision.reduce, "fp32 or bf16");
  if (precision.output.has_value()) {
    require(is_compute(*precision.output), "output", *precision.output, "fp32, bf16 or fp16");
  }
}

}  // namespace shale::amp
