// Tests links between two ranks: values, order, capacity, and errors when sender and receiver
// disagree.
#include <chrono>

#include "shale/comm/link/pipe_link.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

using comm::Direction;
using comm::LinkSpec;
using comm::MessageId;
using comm::PipeLink;
using comm::Work;

constexpr int64_t kCount = 3001;
using Links = std::vector<std::unique_ptr<PipeLink>>;

// Makes links from every rank forward to the next one and backward to the previous one; the last
// two ranks have an additional link.
std::vector<LinkSpec> ring(int ranks, int slots, int64_t bytes = kCount * 4) {
  std::vector<LinkSpec> specs;
  for (int r = 0; r < ranks; ++r) {
    specs.push_back(
        {.sender = r, .receiver = (r + 1) % ranks, .capacity_bytes = bytes, .slots = slots});
    specs.push_back({.sender = (r + 1) % ranks,
                     .receiver = r,
                     .direction = Direction::kBackward,
                     .capacity_bytes = bytes,
                     .slots = slots});
  }
  return specs;
}

MessageId id_of(const PipeLink& link, int micro_batch) {
  return {.step = 12,
          .micro_batch = micro_batch,
          .chunk = link.options().spec.chunk,
          .direction = link.options().spec.direction};
}

void fill(const Buffer& buffer, const PipeLink& link, int micro_batch, int64_t count) {
  const int salt = link.options().spec.direction == Direction::kForward ? 0 : 1000;
  for (int64_t i = 0; i < count; ++i) {
    buffer.as<float>()[i] = order_value<float>(link.options().spec.sender + salt + micro_batch, i);
  }
}

// Sends messages of several lengths over all links of this rank. All sends start before the first
// receive.
void pass_all(const Setup& setup, const Links& links, int slots) {
  const int64_t counts[] = {kCount, 0, 1, 77};
  for (int first = 0; first < 8; first += slots) {
    std::vector<std::unique_ptr<Buffer>> sent;
    std::vector<Work> works;
    for (const auto& link : links) {
      if (link == nullptr || !link->options().sends) continue;
      for (int k = first; k < first + slots; ++k) {
        const int64_t count = counts[k % 4];
        sent.push_back(std::make_unique<Buffer>(setup, kCount * 4));
        fill(*sent.back(), *link, k, count);
        sent.back()->give();
        works.push_back(link->send(sent.back()->view<float>(count), id_of(*link, k), setup.stream));
      }
    }
    for (const auto& link : links) {
      if (link == nullptr || link->options().sends) continue;
      for (int k = first; k < first + slots; ++k) {
        const int64_t count = counts[k % 4];
        const Buffer got(setup, kCount * 4), want(setup, kCount * 4);
        std::fill_n(got.as<float>(), kCount, -1.f);
        got.give();
        link->receive(got.view<float>(count), id_of(*link, k), setup.stream).wait();
        got.take();
        fill(want, *link, k, count);
        const auto expected = [&](int64_t i) { return i < count ? want.as<float>()[i] : -1.f; };
        CHECK(first_difference(got.as<float>(), kCount, expected) == -1);
      }
    }
    for (const Work& work : works) work.wait();
  }
}

// Sends or receives in host memory, which must fail, and returns the error message.
std::string failure_of(PipeLink& link, float* values, int64_t count, const MessageId& id) {
  const View view = make_view(values, {count});
  return message_of<CommError>(
      [&] { (link.options().sends ? link.send(view, id) : link.receive(view, id)).wait(); });
}

// Makes links between ranks 0 and 1 of a group of all ranks.
Links pair(comm::ProcessGroup& group, int slots = 1) {
  return group.make_links(std::vector<LinkSpec>{
      {.sender = 0, .receiver = 1, .chunk = 1, .capacity_bytes = kCount * 4, .slots = slots}});
}

bool too_few() {
  if (world().size() > 1) return false;
  SUCCEED("needs two ranks");
  return true;
}

}  // namespace

TEST_CASE("links pass values in order, on every backend and from memory of every kind", "[link]") {
  if (too_few()) return;
  for_all_setups([](const Setup& setup) {
    for (const int slots : {1, 2}) {
      CAPTURE(name_of(setup.options), name_of(setup.place), slots);
      const Links links = setup.group.make_links(ring(setup.group.size(), slots));
      pass_all(setup, links, slots);
    }
  });
}

TEST_CASE("what links pass counts as activations, where it is sent", "[link]") {
  if (too_few()) return;
  const auto group = world().group({.timeout_s = 60});
  const Links links = pair(*group);
  group->reset_traffic();
  std::vector<float> values(kCount);
  const View view = make_view(values.data(), {kCount});
  if (group->rank() == 0) links[0]->send(view, id_of(*links[0], 0)).wait();
  if (group->rank() == 1) links[0]->receive(view, id_of(*links[0], 0)).wait();
  const comm::TrafficTotals totals = group->traffic().totals(comm::Traffic::kActivations);
  CHECK(totals.calls == (group->rank() == 0 ? 1 : 0));
  CHECK(totals.sent_bytes == (group->rank() == 0 ? kCount * 4 : 0));
  if (group->rank() > 1) CHECK(links[0] == nullptr);
}

TEST_CASE("a sender is ahead by the slots and no further", "[link]") {
  if (too_few()) return;
  for (const comm::GroupOptions& options : group_variants()) {
    for (const int slots : {1, 3}) {
      CAPTURE(name_of(options), slots);
      const auto group = world().group(options);
      const Links links = pair(*group, slots);
      std::vector<std::vector<float>> values;
      for (int k = 0; k <= slots; ++k) values.emplace_back(kCount, static_cast<float>(k));
      const auto view = [&](int k) {
        return make_view(values[static_cast<size_t>(k)].data(), {kCount});
      };
      std::vector<Work> works;
      if (group->rank() == 0) {
        for (int k = 0; k <= slots; ++k) {
          works.push_back(links[0]->send(view(k), id_of(*links[0], k)));
        }
        for (int k = 0; k < slots; ++k) {
          CHECK(works[static_cast<size_t>(k)].done());
          works[static_cast<size_t>(k)].wait();
          // The buffer may be overwritten after wait().
          values[static_cast<size_t>(k)].assign(kCount, -1.f);
        }
        CHECK_FALSE(works.back().done());
      }
      group->barrier();  // Until here the receiver has called nothing.
      if (group->rank() == 0) works.back().wait();
      if (group->rank() == 1) {
        for (int k = 0; k <= slots; ++k) {
          std::vector<float> got(kCount);
          links[0]->receive(make_view(got.data(), {kCount}), id_of(*links[0], k)).wait();
          CHECK(got == std::vector<float>(kCount, static_cast<float>(k)));
        }
      }
      group->barrier();
    }
  }
}

TEST_CASE("links do not order each other, and receives may come first", "[link]") {
  if (too_few()) return;
  for (const comm::GroupOptions& options : group_variants()) {
    CAPTURE(name_of(options));
    const auto group = world().group(options);
    std::vector<LinkSpec> specs;
    for (const int chunk : {0, 1}) {
      specs.push_back({.sender = 0, .receiver = 1, .chunk = chunk, .capacity_bytes = 4});
    }
    const Links links = group->make_links(specs);
    float values[] = {10, 11};
    if (group->rank() == 0) {
      group->barrier();  // By now all receives have been started.
      for (const size_t k : {1, 0}) {
        links[k]->send(make_view(values + k, {1}), id_of(*links[k], 0)).wait();
      }
    } else {
      float got[] = {0, 0};
      std::vector<Work> works;
      for (const size_t k : {0, 1}) {
        if (group->rank() != 1) continue;
        works.push_back(links[k]->receive(make_view(got + k, {1}), id_of(*links[k], 0)));
        CHECK_FALSE(works.back().done());
      }
      group->barrier();
      for (const Work& work : works) work.wait();
      if (group->rank() == 1) CHECK((got[0] == 10 && got[1] == 11));
    }
    group->barrier();
  }
}

TEST_CASE("a message that is not the expected one is named with both ends, on both", "[link]") {
  if (too_few()) return;
  for (const comm::GroupOptions& options : group_variants()) {
    for (const int change : {0, 1, 2, 3}) {
      CAPTURE(name_of(options), change);
      const auto group = world().group(options);
      const Links links = pair(*group);
      std::vector<double> values(kCount);
      const auto floats = reinterpret_cast<float*>(values.data());
      std::string message;
      if (group->rank() == 0) {
        links[0]->send(make_view(floats, {64}), id_of(*links[0], 7)).wait();
        // The link has a free slot, so the first send succeeds even if the receiver expects another
        // message.
        message = failure_of(*links[0], floats, 64, id_of(*links[0], 8));
      } else if (group->rank() == 1) {
        MessageId id = id_of(*links[0], change == 0 ? 8 : 7);
        if (change == 1) id.step = 13;
        if (change == 2) {
          message = failure_of(*links[0], floats, 63, id);
        } else if (change == 3) {
          const View wide = make_view(values.data(), {64});
          message = message_of<CommError>([&] { links[0]->receive(wide, id).wait(); });
        } else {
          message = failure_of(*links[0], floats, 64, id);
        }
      }
      if (group->rank() < 2) {
        CAPTURE(message);
        const std::string expected = change == 0   ? "forward 8 of chunk 1 in step 12, fp32[64]"
                                     : change == 1 ? "forward 7 of chunk 1 in step 13, fp32[64]"
                                     : change == 2 ? "forward 7 of chunk 1 in step 12, fp32[63]"
                                                   : "forward 7 of chunk 1 in step 12, fp64[64]";
        CHECK(contains(message, cat("link 0 -> 1: rank 0 sends forward 7 of chunk 1 in step 12, "
                                    "fp32[64], and rank 1 expects ",
                                    expected)));
        CHECK(contains(failure_of(*links[0], floats, 64, id_of(*links[0], 9)),
                       "cannot be used any more"));
      }
      group->barrier();
    }
  }
}

TEST_CASE("an end that does not come is named after the time-out, with the message", "[link]") {
  if (too_few()) return;
  for (comm::GroupOptions options : group_variants()) {
    options.timeout_s = 0.3;
    CAPTURE(name_of(options));
    const auto meet = world().group({.timeout_s = 60});
    const auto group = world().group(options);
    {
      const Links links = pair(*group);
      float value = 0;
      if (group->rank() == 1) {
        CHECK(contains(failure_of(*links[0], &value, 1, id_of(*links[0], 7)),
                       "link 0 -> 1: rank 1 waited 0.3 s for forward 7 of chunk 1 in step 12, "
                       "fp32[1], which rank 0 does not send"));
      }
      meet->barrier();
    }
    {
      const Links links = pair(*group);
      float value = 0;
      if (group->rank() == 0) {
        links[0]->send(make_view(&value, {1}), id_of(*links[0], 0)).wait();
        CHECK(
            contains(failure_of(*links[0], &value, 1, id_of(*links[0], 1)),
                     "link 0 -> 1: rank 0 waited 0.3 s for a free buffer for forward 1 of "
                     "chunk 1 in step 12, fp32[1], but rank 1 has not received earlier messages"));
      }
      meet->barrier();
      // The receiver still gets messages that were sent before.
      if (group->rank() == 1) {
        links[0]->receive(make_view(&value, {1}), id_of(*links[0], 0)).wait();
      }
      meet->barrier();
    }
  }
}

TEST_CASE("a link that an exception passes by gives its buffers back at once", "[link]") {
  if (too_few()) return;
  for (const comm::GroupOptions& options : group_variants()) {
    CAPTURE(name_of(options));
    const auto group = world().group(options);
    const Links links = pair(*group);
    const auto start = std::chrono::steady_clock::now();
    if (group->rank() == 1) {
      CHECK_THROWS_AS(
          [&] {
            float value = 0;
            const Work work = links[0]->receive(make_view(&value, {1}), id_of(*links[0], 0));
            throw DataError("something else");
          }(),
          DataError);
      CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
      float value = 0;
      CHECK(contains(failure_of(*links[0], &value, 1, id_of(*links[0], 0)), "given up"));
    }
    group->barrier();
  }
}

TEST_CASE("links refuse what cannot be, and ranks that ask for different ones", "[link]") {
  const auto group = world().group({.timeout_s = 60});
  const int ranks = group->size();
  const auto refusal = [&](const LinkSpec& spec) {
    return message_of<ConfigError>([&] { group->make_links(std::vector<LinkSpec>{spec, spec}); });
  };
  CHECK(contains(refusal({.sender = 0, .receiver = ranks}),
                 cat("expected ranks from 0 to ", ranks - 1)));
  CHECK(contains(refusal({.sender = 0, .receiver = 0}), "expected two different ranks"));
  CHECK(group->make_links({}).empty());
  if (too_few()) return;
  CHECK(contains(refusal({.sender = 0, .receiver = 1, .slots = 0}), "slots is 0"));
  CHECK(contains(refusal({.sender = 0, .receiver = 1, .capacity_bytes = -1}), "capacity_bytes"));
  CHECK(contains(refusal({.sender = 0, .receiver = 1}), "the link was given twice"));
  const int odd = ranks - 1;
  const std::string message = message_of<CommError>([&] {
    group->make_links(
        std::vector<LinkSpec>{{.sender = 0, .receiver = 1, .chunk = group->rank() == odd ? 1 : 0}});
  });
  CHECK(contains(message, cat("expected the links of rank 0, but rank ", odd)));

  const Links links = pair(*group);
  if (group->rank() > 1) return;
  PipeLink& link = *links[0];
  std::vector<float> values(kCount + 1);
  const View view = make_view(values.data(), {1});
  const auto own = [&](const View& x, const MessageId& id) {
    return link.options().sends ? link.send(x, id) : link.receive(x, id);
  };
  const auto other = [&] {
    return link.options().sends ? link.receive(view, id_of(link, 0))
                                : link.send(view, id_of(link, 0));
  };
  CHECK(
      contains(message_of<ConfigError>([&] { other(); }), "this end of the link belongs to rank"));
  CHECK(contains(message_of<ConfigError>([&] { own(view, {.chunk = 2}); }), "expected forward"));
  CHECK(contains(
      message_of<ShapeError>([&] { own(make_view(values.data(), {kCount + 1}), id_of(link, 0)); }),
      "expected at most 12004"));
}

}  // namespace shale::test
