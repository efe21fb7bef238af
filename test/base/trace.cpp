#include "shale/base/trace.h"

#include <thread>
#include <vector>

#include "shale/base/text.h"
#include "shale/test/support/catch.h"

namespace shale {

TEST_CASE("a tracer adds up calls and seconds per name", "[trace]") {
  Tracer tracer;
  tracer.add("forward", 0.5);
  tracer.add("forward", 0.25);
  tracer.add("backward", 1);
  CHECK(tracer.seconds("forward") == 0.75);
  CHECK(tracer.seconds("backward") == 1);
  CHECK(tracer.seconds("never") == 0);
  CHECK(tracer.totals().size() == 2);
  CHECK(tracer.totals().at("forward").calls == 2);
  tracer.reset();
  CHECK(tracer.totals().empty());
}

TEST_CASE("a trace scope adds the time it lived", "[trace]") {
  Tracer tracer;
  const auto before = std::chrono::steady_clock::now();
  {
    const TraceScope scope(&tracer, "sleep");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::chrono::duration<double> outside = std::chrono::steady_clock::now() - before;
  CHECK(tracer.totals().at("sleep").calls == 1);
  CHECK(tracer.seconds("sleep") >= 0.005);
  CHECK(tracer.seconds("sleep") <= outside.count());
}

TEST_CASE("a trace scope without a tracer does nothing", "[trace]") {
  CHECK_NOTHROW(TraceScope(nullptr, "x"));
}

TEST_CASE("threads may add at the same time", "[trace]") {
  Tracer tracer;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) tracer.add("x", 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(tracer.totals().at("x").calls == 4000);
  CHECK(tracer.seconds("x") == 4000);
}

namespace {

class Nesting : public Tracer {
 public:
  void enter(std::string_view name) override { text += cat("(", name); }
  void leave() noexcept override { text += ")"; }
  std::string text;
};

}  // namespace

TEST_CASE("a tracer sees scopes begin and end as they are nested", "[trace]") {
  Nesting tracer;
  {
    const TraceScope step(&tracer, "step");
    { const TraceScope forward(&tracer, "forward"); }
    const TraceScope backward(&tracer, "backward");
  }
  CHECK(tracer.text == "(step(forward)(backward))");
  CHECK(tracer.totals().size() == 3);
}

}  // namespace shale
