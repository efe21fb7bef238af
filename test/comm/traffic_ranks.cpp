#include "shale/comm/traffic.h"

#include <chrono>
#include <thread>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/models/language/family.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {

using comm::Traffic;
using comm::TrafficTotals;

TEST_CASE("collectives count what a ring sends, by class") {
  const auto group = world().group({.timeout_s = 60});
  const double n = group->size(), others = (n - 1) / n;
  std::vector<float> whole(static_cast<size_t>(group->size()) * 100), slice(100);
  const View all = make_view(whole.data(), {100 * group->size()});
  const View mine = make_view(slice.data(), {100});
  const double bytes = 400 * n;

  group->all_reduce_sum(all, {.traffic = Traffic::kGradients});
  CHECK(group->traffic().totals(Traffic::kGradients).sent_bytes == Approx(2 * bytes * others));
  group->reduce_scatter_sum(all, mine, {.async = true, .traffic = Traffic::kGradients}).wait();
  CHECK(group->traffic().totals(Traffic::kGradients).sent_bytes == Approx(3 * bytes * others));
  group->all_gather(mine, all, {.traffic = Traffic::kParameters});
  group->broadcast(all, 0, {.traffic = Traffic::kParameters});
  CHECK(group->traffic().totals(Traffic::kParameters).sent_bytes == Approx(2 * bytes * others));
  group->barrier();
  CHECK(group->traffic().totals(Traffic::kGradients).calls == 2);
  CHECK(group->traffic().totals(Traffic::kParameters).calls == 2);
  CHECK(group->traffic().totals(Traffic::kControl).calls == 1);
  CHECK(group->traffic().totals(Traffic::kControl).sent_bytes == 0);
  CHECK(group->traffic().totals().calls == 5);
  CHECK(group->traffic().totals().sent_bytes == Approx(5 * bytes * others));
}

TEST_CASE("a group's accounts include those of the groups split from it") {
  const auto group = world().group({.timeout_s = 60});
  const auto same = group->split(0, group->rank(), "same");
  float value = 1;
  same->all_reduce_sum(make_view(&value, {1}));
  CHECK(same->traffic().totals().calls == 1);
  CHECK(group->traffic().totals().calls == 1);
  group->barrier();
  CHECK(same->traffic().totals().calls == 1);
}

TEST_CASE("time in which several collectives are in flight counts once, here and above") {
  comm::TrafficMeter meter;
  const auto parent = std::make_shared<comm::TrafficMeter>();
  meter.set_parent(parent);
  const auto start = std::chrono::steady_clock::now();
  meter.begin_flight();
  meter.begin_flight();
  parent->begin_flight();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  meter.end_flight();
  // The time includes a collective that is still in flight.
  CHECK(meter.in_flight_seconds() >= 0.02);
  meter.end_flight();
  const double flown = meter.in_flight_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(meter.in_flight_seconds() == flown);
  CHECK(parent->in_flight_seconds() >= flown + 0.02);
  parent->end_flight();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  CHECK(parent->in_flight_seconds() <= passed.count());
  meter.reset();
  CHECK(meter.in_flight_seconds() == 0);
}

TEST_CASE("time spent blocked is exposed, time in flight is not") {
  const auto group = world().group({.timeout_s = 60});
  const int64_t count = 1 << 20;
  const Buffer buffer(*group, Place::kAny, count * 4);
  const View view = make_view(buffer.as<float>(), {count});
  const comm::Work work = group->all_reduce_sum(view, {.async = true});
  while (!work.done()) std::this_thread::yield();
  work.wait();
  CHECK(group->traffic().totals().exposed_seconds == 0);
  if (group->size() == 1) return;
  // Rank 0 waits for a late rank, in a blocking and in an asynchronous call.
  for (const bool async : {false, true}) {
    const double before = group->traffic().totals().exposed_seconds;
    group->barrier();
    if (group->rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    group->all_reduce_sum(view, {.async = async}).wait();
    if (group->rank() == 0) {
      CHECK(group->traffic().totals().exposed_seconds > before + 0.02);
    }
  }
}

TEST_CASE("data parallelism sends 2 psi (N-1)/N gradients a step, however it accumulates") {
  const auto group = world().group({.timeout_s = 60});
  Context context(small_context(1));
  models::LanguageModelConfig config;
  config.layers = 2;
  config.width = 32;
  config.heads = 2;
  config.vocab = 61;
  config.padded_vocab = 64;
  config.context = 8;
  const auto model = models::make_language_model(config);
  comm::DataParallel parallel(*model, model->blocks(), context, *group, {.seed = 3});
  double psi = 0;  // number of elements in flat buffers, including padding
  for (const OptimShard& shard : parallel.shards()) psi += double(shard.grad.numel());

  const std::vector<int32_t> ids(8, 1);
  for (const int micro_batches : {1, 3}) {
    const TrafficTotals before = group->traffic().totals(Traffic::kGradients);
    for (int j = 0; j < micro_batches; ++j) {
      const Tensor tokens = from_host<int32_t>(context, ids, {1, 8});
      const Tensor loss = model->loss(tokens, tokens);
      parallel.begin_backward(j + 1 == micro_batches);
      backward(loss);
    }
    parallel.finish_gradients();
    zero_grad(parallel.shards());
    const TrafficTotals after = group->traffic().totals(Traffic::kGradients);
    const double n = group->size();
    CHECK(after.sent_bytes - before.sent_bytes == Approx(2 * psi * 4 * (n - 1) / n));
    if (n > 1) CHECK(after.calls - before.calls == int64_t(parallel.shards().size()));
  }
  CHECK(contains(group->traffic().summary(), "gradients"));
}

}  // namespace shale::test
