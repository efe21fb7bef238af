#include "shale/models/training/step_exchange.h"

#include <limits>

#include "shale/base/text.h"
#include "shale/comm/sums/ordered_sum.h"
#include "shale/runtime/tensor/context.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {

TEST_CASE("the end of a step gives all ranks the same sum, times and requests to stop") {
  const auto group = world().group({.timeout_s = 60});
  const int rank = group->rank(), last = group->size() - 1;
  // The sum of these values depends on their order.
  const std::vector<double> losses = {1e16 * (rank + 1), 1.0, -1e16 * (rank + 1)};
  models::StepExchange exchange(*group);
  exchange.start({.losses = losses,
                  .busy_s = 0.5 + rank,
                  .step_s = 2.0 + rank,
                  .stop = rank == last,
                  .save = {.is_time = rank == 0,
                           .progress = {.finished = 7 - rank, .failed = rank == last ? 8 : 0}}});
  const models::StepSummary news = exchange.take();
  CHECK(news.loss_sum == comm::ordered_sum(*group, losses));
  REQUIRE(news.busy_s.size() == static_cast<size_t>(group->size()));
  for (int r = 0; r <= last; ++r) CHECK(news.busy_s[static_cast<size_t>(r)] == 0.5 + r);
  CHECK(news.step_s == 2.0 + last);
  CHECK(news.ranks_to_stop == std::vector<int>{last});
  CHECK(news.save.is_time);
  CHECK(news.save.progress.finished == 7 - last);
  CHECK(news.save.progress.failed == 8);
  exchange.start({.losses = losses});
  const models::StepSummary next = exchange.take();
  CHECK(next.ranks_to_stop.empty());
  CHECK_FALSE(next.save.is_time);
  CHECK(next.save.progress.failed == 0);
}

TEST_CASE("of ranks that work on one micro-batch the losses of one count, in the order of data") {
  const auto group = world().group({.timeout_s = 60});
  const int rank = group->rank(), last = group->size() - 1;
  const std::vector<double> losses = {1e16 * (rank + 1), 1.0, -1e16 * (rank + 1)};
  models::StepExchange exchange(*group, {last, 0});
  exchange.start({.losses = losses});
  std::vector<double> rows;
  for (const int r : {last, 0}) {
    for (const double loss : {1e16 * (r + 1), 1.0, -1e16 * (r + 1)}) rows.push_back(loss);
  }
  CHECK(exchange.take().loss_sum == comm::ordered_sum(rows, 2, 3));
}

TEST_CASE("ranks agree on the micro-batch at which they stop, at most one vote late") {
  const auto group = world().group({.timeout_s = 60});
  Context context({.threads = 1});
  const bool is_last = group->rank() == group->size() - 1;
  models::StopVotes votes(*group, context);
  // While the length of a step is unknown, ranks vote at each micro-batch.
  CHECK_FALSE(votes.stops(0, false));
  CHECK_FALSE(votes.stops(1, is_last));
  CHECK(votes.stops(2, is_last));
  // A request before a step stops at its first micro-batch.
  CHECK(models::StopVotes(*group, context).stops(0, is_last));
  votes.set_step(/*step_s=*/16, /*micro_batches=*/128);         // two micro-batches take 0.25 s
  CHECK(votes.stops(4, false));  // the last rank asked before this call
  CHECK_FALSE(votes.stops(5, is_last));
  CHECK_FALSE(votes.stops(6, is_last));
  CHECK_FALSE(votes.stops(7, is_last));
  CHECK(votes.stops(8, is_last));
  votes.set_step(0.5, 128);
  CHECK(votes.stops(0, is_last));
  CHECK_FALSE(votes.stops(63, is_last));
  CHECK(votes.stops(64, is_last));
  votes.set_step(0.2, 128);  // so short a step is not interrupted
  CHECK_FALSE(votes.stops(0, is_last));
}

TEST_CASE("ranks whose loss is not finite are named on all ranks") {
  const auto group = world().group({.timeout_s = 60});
  const int last = group->size() - 1;
  CHECK(models::ranks_of_bad_losses(*group, {1, 2}).empty());
  const double loss = group->rank() == last ? std::numeric_limits<double>::infinity() : 1;
  CHECK(models::ranks_of_bad_losses(*group, {0, loss}) == cat(" (on rank ", last, ")"));
}

}  // namespace shale::test
