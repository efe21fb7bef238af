#include "shale/comm/hosts/rank_places.h"

#include "shale/test/support/catch.h"

namespace shale::comm {

TEST_CASE("ranks are named with their places, of four at most") {
  RankPlaces places;
  CHECK(places.list({1}) == "rank 1");
  places.set({"tensor 0", "tensor 1", "tensor 2", "tensor 3", "tensor 4"});
  CHECK(places.list({1}) == "rank 1 (tensor 1)");
  CHECK(places.list({3, 1}) == "ranks 1,3 (tensor 1; tensor 3)");
  CHECK(places.list({0, 1, 2, 3, 4}) == "ranks 0-4");
  CHECK(places.list({7}) == "rank 7");
}

}  // namespace shale::comm
