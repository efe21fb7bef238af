#include "shale/comm/watch/in_flight.h"

#include "shale/test/support/catch.h"

namespace shale::comm {
namespace {

// Simulates a device that executes collectives in order.
class Device {
 public:
  explicit Device(InFlight& in_flight) : in_flight_(in_flight) {}
  void queue(int count) {
    const View view = make_view(static_cast<float*>(nullptr), {0});
    for (int i = 0; i < count; ++i) {
      const uint64_t number = queued_++;
      in_flight_.add(
          fingerprint({.op = CollectiveOp::kAllReduceSum, .in = view, .out = view}, number), 64,
          [this, number] { return number < finished_; });
    }
  }
  void finish(uint64_t count) { finished_ += count; }

 private:
  InFlight& in_flight_;
  uint64_t queued_ = 0, finished_ = 0;
};

std::vector<uint64_t> sequences(const RecentCollectives& recent) {
  std::vector<uint64_t> numbers;
  for (const auto& entry : recent.newest_first()) numbers.push_back(entry.call.sequence);
  return numbers;
}

}  // namespace

TEST_CASE("of the collectives in flight the first is noted as running, then the one behind it") {
  RecentCollectives recent;
  InFlight in_flight(recent, "world");
  CHECK((in_flight.empty() && in_flight.drop_finished() == 0));
  Device device(in_flight);
  device.queue(3);
  REQUIRE(sequences(recent) == std::vector<uint64_t>{0});
  CHECK(recent.newest_first()[0].running);
  CHECK(recent.newest_first()[0].bytes == 64);
  CHECK(std::string_view(recent.newest_first()[0].group.data()) == "world");

  device.finish(1);
  CHECK(in_flight.drop_finished() == 1);
  CHECK(in_flight.first().sequence == 1);
  const auto entries = recent.newest_first();
  REQUIRE(sequences(recent) == std::vector<uint64_t>{1, 0});
  CHECK((entries[0].running && !entries[1].running));
}

TEST_CASE("collectives that ended between two looks are all noted, as ended") {
  RecentCollectives recent;
  InFlight in_flight(recent, "world");
  Device device(in_flight);
  device.queue(4);
  device.finish(4);
  CHECK(in_flight.drop_finished() == 4);
  CHECK(in_flight.empty());
  CHECK(sequences(recent) == std::vector<uint64_t>{3, 2, 1, 0});
  for (const auto& entry : recent.newest_first()) CHECK_FALSE(entry.running);
  device.queue(1);  // the device continues with its queue
  CHECK(recent.newest_first()[0].running);
}

TEST_CASE("a collective that hangs stays in the list, however many wait behind it") {
  RecentCollectives recent;
  InFlight in_flight(recent, "world");
  Device device(in_flight);
  device.queue(2);
  device.finish(1);
  in_flight.drop_finished();
  device.queue(100);
  CHECK(in_flight.drop_finished() == 0);
  CHECK(sequences(recent) == std::vector<uint64_t>{1, 0});
  CHECK(recent.newest_first()[0].running);
  CHECK(in_flight.seconds() >= 0);
}

TEST_CASE("when a group goes, nothing of it is said to be running") {
  RecentCollectives recent;
  {
    InFlight in_flight(recent, "world");
    Device(in_flight).queue(2);
  }
  REQUIRE(sequences(recent) == std::vector<uint64_t>{0});
  CHECK_FALSE(recent.newest_first()[0].running);
}

}  // namespace shale::comm
