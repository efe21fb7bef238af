#include "comm/data_parallel.h"

#include <algorithm>
#include <chrono>

#include "comm/flat_unit.h"
#include "runtime/base/error.h"

namespace shale::comm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

DataParallel::DataParallel(Module& model, const std::vector<Module*>& units, Context& context,
                           ProcessGroup& group, const DataParallelOptions& options)
    : context_(context), group_(group), options_(options) {
  // Peers reach gradients directly; the provider is set before the first gradient is allocated.
  if (group.size() > 1) context.allocator().set_provider(MemoryTag::kGradient, &group.memory());
  for (const UnitPlan& plan : plan_units(model, units)) {
    auto unit =
        std::make_unique<FlatUnit>(plan, context, group.size(), options.compute, options.seed);
    unit->set_ready_hook([this] {
      if (reducing_ && options_.overlap) issue_ready();
    });
    units_.push_back(std::move(unit));
  }
  for (const auto& unit : units_) {
    if (unit->empty()) continue;
    shards_.push_back(unit->shard());
    order_.push_back(unit.get());
  }
  // The root is the last unit and keeps that place; the others are reduced from last to first.
  if (!units_.back()->empty()) {
    std::reverse(order_.begin(), order_.end() - 1);
  } else {
    std::reverse(order_.begin(), order_.end());
  }
}

DataParallel::~DataParallel() {
  // A reduction in flight writes memory that is about to go away.
  for (const Work& work : in_flight_) {
    try {
      work.wait();
    } catch (const std::exception&) {
      // The error that got us here is on its way already.
    }
  }
  shards_.clear();
  units_.clear();
  if (group_.size() > 1) context_.allocator().set_provider(MemoryTag::kGradient, nullptr);
}

void DataParallel::begin_backward(bool reduce) {
  reducing_ = reduce && group_.size() > 1;
  issued_ = 0;
  for (const auto& unit : units_) unit->begin_backward();
}

// Same order on all ranks, whatever order the units became ready in.
void DataParallel::issue_ready() {
  for (; issued_ < order_.size() && order_[issued_]->ready(); ++issued_) {
    FlatUnit& unit = *order_[issued_];
    // Backward may have passed a parameter without a gradient; after this nobody may write here.
    unit.complete();
    in_flight_.push_back(
        group_.all_reduce_sum(unit.grad(), {.tag = unit.name(), .async = options_.overlap}));
  }
}

void DataParallel::finish_gradients() {
  if (!reducing_ && group_.size() > 1) {
    throw InternalError(
        "finish_gradients: the last begin_backward() was called with reduce = false, "
        "so the ranks' gradients would stay different; want true");
  }
  for (const auto& unit : units_) unit->complete();
  const Clock::time_point start = Clock::now();
  if (reducing_) issue_ready();
  for (const Work& work : in_flight_) work.wait();
  in_flight_.clear();
  reducing_ = false;
  exposed_seconds_ += seconds_since(start);
}

void DataParallel::load(const std::function<void(const Parameter&, const View&)>& fill) {
  std::vector<float> host;
  for (const auto& unit : units_) {
    for (const auto& [parameter, master] : unit->masters()) {
      host.resize(static_cast<size_t>(parameter->numel()));
      fill(*parameter, make_view(host.data(), parameter->shape));
      context_.copy(master.data(), host.data(), master.bytes());
      context_.synchronize();
      unit->publish(*parameter, master);
    }
  }
}

void DataParallel::read(const Parameter& parameter, const View& to) {
  for (const auto& unit : units_) {
    for (const auto& [candidate, master] : unit->masters()) {
      if (candidate != &parameter) continue;
      context_.copy(to.as<float>(), master.data(), master.bytes());
      context_.synchronize();
      return;
    }
  }
  throw InternalError(cat("data_parallel: ", parameter.full_name(), " is not part of the model"));
}

}  // namespace shale::comm
