#include "shale/bench/support/gemm_floor.h"

#include <algorithm>
#include <set>
#include <utility>

#include "shale/base/error.h"
#include "shale/bench/support/timing.h"

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

// The ranges with what overlaps or touches joined, by address.
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

}  // namespace

GemmFloor::GemmFloor(std::vector<GemmCall> calls) {
  make_regions(calls);
  size_t scratch_bytes = 0;
  for (GemmCall& call : calls) {
    auto found = matmuls_.find(call.spec);
    if (found == matmuls_.end()) {
      found = matmuls_.emplace(call.spec, VendorMatmul(call.spec)).first;
    }
    scratch_bytes = std::max(scratch_bytes, found->second.scratch_bytes());
    call.a = here(call.a);
    call.b = here(call.b);
    call.c = here(call.c);
    products_.push_back({std::move(call), &found->second});
  }
  scratch_ = Buffer(scratch_bytes);
  plan_inputs();
  write_inputs(inputs_);
}

void GemmFloor::make_regions(const std::vector<GemmCall>& calls) {
  std::vector<Range> ranges;
  for (const GemmCall& call : calls) {
    ranges.push_back(range_of(call.a, call.spec.a_bytes()));
    ranges.push_back(range_of(call.b, call.spec.b_bytes()));
    ranges.push_back(range_of(call.c, call.spec.c_bytes()));
  }
  for (const Range& range : joined(std::move(ranges))) {
    // The same place within a page: alignment matters to speed.
    const uintptr_t begin = range.begin / kPage * kPage;
    regions_.push_back({begin, range.end, Buffer(range.end - begin)});
  }
}

void* GemmFloor::here(const void* there) const {
  const auto address = reinterpret_cast<uintptr_t>(there);
  auto after = std::upper_bound(
      regions_.begin(), regions_.end(), address,
      [](uintptr_t value, const Region& region) { return value < region.begin; });
  const Region& region = *std::prev(after);
  return region.buffer.data() + (address - region.begin);
}

// Values as a model has them, small enough that no chain of products overflows and large enough
// that none reaches denormal numbers, which are slow. The second operand of most products is a
// weight.
void GemmFloor::plan_inputs() {
  std::set<std::pair<const void*, int64_t>> seen;
  std::vector<Range> written;
  for (const Product& product : products_) {
    const MatmulSpec& spec = product.call.spec;
    written.push_back(range_of(product.call.c, spec.c_bytes()));
    for (const auto& [data, bytes, scale] :
         {std::tuple(product.call.a, spec.a_bytes(), 1.0),
          std::tuple(product.call.b, spec.b_bytes(), 0.03)}) {
      if (!seen.emplace(data, bytes).second) continue;
      inputs_.push_back({.view = make_view(const_cast<void*>(data), spec.in,
                                           {bytes / dtype_size(spec.in)}),
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

void GemmFloor::write_inputs(const std::vector<Operand>& inputs) const {
  for (const Operand& input : inputs) fill_uniform(input.view, input.scale, input.seed);
}

double GemmFloor::run() {
  write_inputs(overwritten_);
  double seconds = 0;
  for (const Product& product : products_) {
    const GemmCall& call = product.call;
    const double elapsed =
        time_once([&] { product.matmul->run(call.a, call.b, call.c, scratch_.data()); });
    CallTotal& total = totals_[call.name];
    ++total.calls;
    total.seconds += elapsed;
    total.cost.flops += call.spec.flops();
    seconds += elapsed;
  }
  return seconds;
}

double GemmFloor::flops() const {
  double sum = 0;
  for (const Product& product : products_) sum += product.call.spec.flops();
  return sum;
}

int64_t GemmFloor::memory_bytes() const {
  int64_t sum = 0;
  for (const Region& region : regions_) sum += int64_t(region.buffer.bytes());
  return sum;
}

}  // namespace shale::bench
