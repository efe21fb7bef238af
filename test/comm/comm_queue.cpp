#include "shale/comm/comm_queue.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "shale/test/support/catch.h"

namespace shale::test {

TEST_CASE("queued jobs run in order, on a thread of their own") {
  comm::CommQueue queue;
  std::vector<int> order;
  std::vector<comm::Work> works;
  std::thread::id thread;
  for (int i = 0; i < 100; ++i) {
    works.push_back(queue.enqueue(
        [&, i](bool blocking) {
          order.push_back(i);
          thread = std::this_thread::get_id();
          if (blocking) throw std::logic_error("queued jobs do not block anyone");
        },
        nullptr));
  }
  for (const comm::Work& work : works) work.wait();
  REQUIRE(order.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(order[static_cast<size_t>(i)] == i);
  CHECK(thread != std::this_thread::get_id());
}

TEST_CASE("a blocking job on an empty queue runs on the caller, else behind what is queued") {
  comm::CommQueue queue;
  std::thread::id thread;
  const auto note = [&](bool) { thread = std::this_thread::get_id(); };
  queue.run(note, nullptr);
  CHECK(thread == std::this_thread::get_id());

  std::atomic<bool> go{false};
  std::vector<int> order;
  queue.enqueue(
      [&](bool) {
        while (!go) std::this_thread::yield();
        order.push_back(1);
      },
      nullptr);
  std::thread release([&] { go = true; });
  queue.run([&](bool) { order.push_back(2); }, nullptr);
  release.join();
  CHECK(order == std::vector<int>{1, 2});
}

TEST_CASE("a job's exception comes out where its end is waited for") {
  comm::CommQueue queue;
  const auto fail = [](bool) { throw std::runtime_error("broken"); };
  CHECK_THROWS_AS(queue.run(fail, nullptr), std::runtime_error);
  const comm::Work work = queue.enqueue(fail, nullptr);
  CHECK_THROWS_AS(work.wait(), std::runtime_error);
  CHECK_THROWS_AS(work.wait(), std::runtime_error);
  int ran = 0;
  queue.run([&](bool) { ++ran; }, nullptr);  // after an error, the queue still works
  CHECK(ran == 1);
}

TEST_CASE("several threads may use one queue") {
  comm::CommQueue queue;
  int64_t sum = 0;  // no lock: the queue runs one job at a time
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const auto add = [&](bool) { sum += 1; };
        if ((i + t) % 2 == 0) {
          queue.run(add, nullptr);
        } else {
          queue.enqueue(add, nullptr);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  queue.drain();
  CHECK(sum == 2000);
}

}  // namespace shale::test
