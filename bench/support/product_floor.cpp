#include "shale/bench/support/product_floor.h"

#include <algorithm>
#include <set>
#include <utility>

#include "shale/base/error.h"
#include "shale/bench/support/timing.h"
#include "shale/bench/support/vendor_conv.h"
#include "shale/bench/support/vendor_matmul.h"

namespace shale::bench {
namespace {

constexpr uintptr_t kPage = 4096;

struct Range {
  uintptr_t begin = 0, end = 0;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

Range range_of(const void* data, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, begin + static_cast<uintptr_t>(bytes)};
}

// Merges overlapping and adjacent ranges; returns them sorted by address.
std::vector<Range> joined(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> out;
  for (const Range& range : ranges) {
    if (!out.empty() && range.begin <= out.back().end) {
      out.back().end = std::max(out.back().end, range.end);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

// Bytes of a call's operands; 0: the call has no such operand.
struct Operands {
  DType in = DType::kF32;  // dtype of the inputs
  int64_t a = 0, b = 0, c = 0;
};

Operands bytes_of(const ProductSpec& spec) {
  if (const auto* s = std::get_if<MatmulSpec>(&spec)) {
    return {.in = s->in, .a = s->a_bytes(), .b = s->b_bytes(), .c = s->c_bytes()};
  }
  const auto& s = std::get<ConvSpec>(spec);
  const int64_t x = s.x_bytes(), y = s.y_bytes();
  switch (s.pass) {
    case ConvPass::kForward: return {.in = s.dtype, .a = x, .c = y};
    case ConvPass::kInputGrad: return {.in = s.dtype, .a = y, .c = x};
    case ConvPass::kWeightGrad: return {.in = s.dtype, .a = x, .b = y};
  }
  return {};
}

double flops_of(const ProductSpec& spec) {
  return std::visit([](const auto& s) { return s.flops(); }, spec);
}

std::unique_ptr<VendorPrimitive> make_vendor(const ProductSpec& spec) {
  if (const auto* conv = std::get_if<ConvSpec>(&spec)) return std::make_unique<VendorConv>(*conv);
  return std::make_unique<VendorMatmul>(std::get<MatmulSpec>(spec));
}

}  // namespace

ProductFloor::ProductFloor(std::vector<ProductCall> calls) {
  make_regions(calls);
  size_t scratch_bytes = 0;
  for (ProductCall& call : calls) {
    std::unique_ptr<VendorPrimitive>& vendor = vendors_[call.spec];
    if (vendor == nullptr) vendor = make_vendor(call.spec);
    scratch_bytes = std::max(scratch_bytes, vendor->scratch_bytes());
    call.a = here(call.a);
    call.b = here(call.b);
    call.c = here(call.c);
    products_.push_back({std::move(call), vendor.get()});
  }
  scratch_ = Buffer(scratch_bytes);
  plan_inputs();
  write_inputs(inputs_);
}

void ProductFloor::make_regions(const std::vector<ProductCall>& calls) {
  std::vector<Range> ranges;
  for (const ProductCall& call : calls) {
    const Operands bytes = bytes_of(call.spec);
    ranges.push_back(range_of(call.a, bytes.a));
    if (bytes.b > 0) ranges.push_back(range_of(call.b, bytes.b));
    if (bytes.c > 0) ranges.push_back(range_of(call.c, bytes.c));
  }
  for (const Range& range : joined(std::move(ranges))) {
    // New memory must have the same offset within a page, because alignment affects speed.
    const uintptr_t begin = range.begin / kPage * kPage;
    regions_.push_back({begin, range.end, Buffer(range.end - begin)});
  }
}

void* ProductFloor::here(const void* there) const {
  if (there == nullptr) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(there);
  auto after =
      std::upper_bound(regions_.begin(), regions_.end(), address,
                       [](uintptr_t value, const Region& region) { return value < region.begin; });
  const Region& region = *std::prev(after);
  return region.buffer.data() + (address - region.begin);
}

// Chooses realistic values for inputs. They must be so small that no chain of GEMMs overflows, and
// so large that no number is denormal, because these are slow. The second operand of most GEMMs is
// a weight.
void ProductFloor::plan_inputs() {
  std::set<std::pair<const void*, int64_t>> seen;
  std::vector<Range> written;
  for (const Product& product : products_) {
    const Operands operands = bytes_of(product.call.spec);
    if (operands.c > 0) written.push_back(range_of(product.call.c, operands.c));
    for (const auto& [data, bytes, scale] : {std::tuple(product.call.a, operands.a, 1.0),
                                             std::tuple(product.call.b, operands.b, 0.03)}) {
      if (bytes == 0 || !seen.emplace(data, bytes).second) continue;
      inputs_.push_back({.view = make_view(const_cast<void*>(data), operands.in,
                                           {bytes / dtype_size(operands.in)}),
                         .scale = scale,
                         .seed = seen.size()});
    }
  }
  written = joined(std::move(written));
  std::copy_if(inputs_.begin(), inputs_.end(), std::back_inserter(overwritten_),
               [&](const Operand& input) {
                 const Range range = range_of(input.view.data, input.view.bytes());
                 return std::any_of(written.begin(), written.end(),
                                    [&](const Range& w) { return w.overlaps(range); });
               });
}

void ProductFloor::write_inputs(const std::vector<Operand>& inputs) const {
  for (const Operand& input : inputs) fill_uniform(input.view, input.scale, input.seed);
}

double ProductFloor::run() {
  write_inputs(overwritten_);
  double seconds = 0;
  for (const Product& product : products_) {
    const ProductCall& call = product.call;
    const double elapsed =
        time_once([&] { product.vendor->run(call.a, call.b, call.c, scratch_.data()); });
    CallTotal& total = totals_[call.name];
    ++total.calls;
    total.seconds += elapsed;
    total.cost.flops += flops_of(call.spec);
    seconds += elapsed;
  }
  return seconds;
}

double ProductFloor::flops() const {
  double sum = 0;
  for (const Product& product : products_) sum += flops_of(product.call.spec);
  return sum;
}

int64_t ProductFloor::memory_bytes() const {
  int64_t sum = 0;
  for (const Region& region : regions_) sum += int64_t(region.buffer.bytes());
  return sum;
}

}  // namespace shale::bench
