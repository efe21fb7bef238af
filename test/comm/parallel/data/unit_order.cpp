#include "shale/comm/parallel/data/unit_order.h"

#include "shale/comm/parallel/data/flat_unit.h"
#include "shale/test/support/catch.h"

namespace shale::test {
namespace {

using comm::FlatUnit;

// Uninitialised memory for units, because the test uses only their addresses.
struct Units {
  FlatUnit& operator[](int i) {
    void* const unit = &memory[i];
    return *static_cast<FlatUnit*>(unit);
  }
  std::vector<FlatUnit*> list(const std::vector<int>& indices) {
    std::vector<FlatUnit*> units;
    for (const int i : indices) units.push_back(&(*this)[i]);
    return units;
  }
  std::max_align_t memory[5];
};

}  // namespace

TEST_CASE("units are gathered ahead by the order of the last forward, and in reverse") {
  Units u;  // unit 0 is the root
  comm::UnitOrder order;
  CHECK(order.forward(u[0], 1).empty());
  for (const int i : {2, 1, 3}) CHECK(order.forward(u[i], 1).empty());
  order.begin_backward();
  CHECK(order.backward(u[0], /*encloses_units=*/true, 2) == u.list({3, 1}));
  CHECK(order.backward(u[3], false, 1) == u.list({1}));
  CHECK(order.backward(u[1], false, 2) == u.list({2, 0}));
  CHECK(order.backward(u[2], false, 1) == u.list({0}));
  CHECK(order.backward(u[4], false, 1).empty());  // the last forward did not use this unit

  CHECK(order.forward(u[0], 2) == u.list({2, 1}));
  CHECK(order.forward(u[2], 1) == u.list({1}));
  // This forward has another order than the last one, so nothing can be predicted.
  CHECK(order.forward(u[3], 1).empty());
  // Begins another forward, without a backward. Its predicted order is the order of the last
  // forward.
  CHECK(order.forward(u[0], 3) == u.list({2, 3}));
}

TEST_CASE("until a forward was seen, the order is a guess") {
  Units u;
  comm::UnitOrder order;
  order.set_guess(u.list({0, 1, 2}));
  CHECK(order.forward(u[0], 1) == u.list({1}));
  CHECK(order.forward(u[2], 1).empty());
  order.begin_backward();
  CHECK(order.backward(u[2], false, 1) == u.list({0}));
}

}  // namespace shale::test
