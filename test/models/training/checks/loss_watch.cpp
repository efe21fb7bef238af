#include "shale/models/training/checks/loss_watch.h"

#include "shale/test/support/catch.h"

namespace shale::models {

TEST_CASE("a loss that rises tenfold is reported once, with the learning rate") {
  LossWatch watch;
  CHECK(watch.look(1, 5.5, 0.5).empty());
  CHECK(watch.look(2, 5.0, 0.5).empty());
  CHECK(watch.look(3, 54.0, 0.5).empty());
  const std::string warning = watch.look(4, 1380, 0.5);
  CHECK(test::contains(warning,
                       "step 4: the loss is 1380, more than 10 times its lowest mean of 5.4"));
  CHECK(test::contains(warning, "lower --lr (now 0.5)"));
  CHECK(watch.look(5, 2000, 0.5).empty());
}

TEST_CASE("a noisy small loss, and one below that of the first step, are no divergence") {
  LossWatch watch;
  CHECK(watch.look(1, 0.7, 1e-4).empty());
  for (int step = 2; step < 300; ++step)
    CHECK(watch.look(step, step % 50 == 0 ? 0.3 : 0.001, 1e-4).empty());
  CHECK_FALSE(watch.look(300, 0.71, 1e-4).empty());
}

}  // namespace shale::models
