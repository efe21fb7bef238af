// bad_link DEVICE DEVICE LOSS DELAY_MS
//
// Emulates a link that loses and delays packets, for kernels without such an emulation. Creates two
// TUN devices, prints "ready", and forwards IP packets between them until it is killed. In either
// direction, a packet is lost with probability LOSS, and otherwise arrives DELAY_MS later. After
// "ready", the devices may be moved to other network namespaces. Needs root.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Packet {
  Clock::time_point due;
  std::vector<char> bytes;
};

int open_device(const char* name) {
  const int fd = ::open("/dev/net/tun", O_RDWR | O_CLOEXEC);
  ifreq request = {};
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (fd < 0 || ::ioctl(fd, TUNSETIFF, &request) != 0) {
    std::perror(name);
    std::exit(1);
  }
  return fd;
}

// One direction of the link.
class Way {
 public:
  Way(int from, int to, double loss, std::chrono::milliseconds delay, uint32_t seed)
      : from_(from), to_(to), lost_(loss), delay_(delay), random_(seed) {}

  int from() const { return from_; }
  int64_t taken() const { return taken_; }
  int64_t lost() const { return taken_ - kept_; }
  std::optional<Clock::time_point> next_due() const {
    if (packets_.empty()) return std::nullopt;
    return packets_.front().due;
  }

  void take() {
    std::array<char, 65536> buffer;
    const ssize_t count = ::read(from_, buffer.data(), buffer.size());
    if (count <= 0) return;
    ++taken_;
    if (lost_(random_)) return;
    ++kept_;
    packets_.push_back({Clock::now() + delay_, {buffer.data(), buffer.data() + count}});
  }

  // Packets to a device that is down are dropped, like on an unplugged cable.
  void deliver(Clock::time_point now) {
    for (; !packets_.empty() && packets_.front().due <= now; packets_.pop_front()) {
      const std::vector<char>& bytes = packets_.front().bytes;
      if (::write(to_, bytes.data(), bytes.size()) < 0) continue;
    }
  }

 private:
  int from_, to_;
  int64_t taken_ = 0, kept_ = 0;
  std::bernoulli_distribution lost_;
  std::chrono::milliseconds delay_;
  std::mt19937 random_;
  std::deque<Packet> packets_;  // all packets have the same delay, so the front one is due first
};

volatile std::sig_atomic_t stopped = 0;

int wait_ms(const std::array<Way, 2>& ways) {
  int64_t wait = -1;
  for (const Way& way : ways) {
    const auto due = way.next_due();
    if (!due) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*due - Clock::now()).count();
    const int64_t mine = left > 0 ? left : 0;
    if (wait < 0 || mine < wait) wait = mine;
  }
  return static_cast<int>(wait);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: bad_link DEVICE DEVICE LOSS DELAY_MS\n");
    return 64;
  }
  const int left = open_device(argv[1]), right = open_device(argv[2]);
  const double loss = std::atof(argv[3]);
  const std::chrono::milliseconds delay(std::atoi(argv[4]));
  std::array<Way, 2> ways = {Way(left, right, loss, delay, 1), Way(right, left, loss, delay, 2)};
  struct sigaction action = {};
  action.sa_handler = [](int) { stopped = 1; };
  ::sigaction(SIGTERM, &action, nullptr);
  std::puts("ready");
  std::fflush(stdout);
  while (stopped == 0) {
    std::array<pollfd, 2> ends;
    for (size_t i = 0; i < ways.size(); ++i) ends[i] = {ways[i].from(), POLLIN, 0};
    if (::poll(ends.data(), ends.size(), wait_ms(ways)) < 0 && errno != EINTR) {
      std::perror("poll");
      return 1;
    }
    for (size_t i = 0; i < ways.size(); ++i) {
      if ((ends[i].revents & POLLIN) != 0) ways[i].take();
      ways[i].deliver(Clock::now());
    }
  }
  std::printf("lost %lld of %lld packets\n",
              static_cast<long long>(ways[0].lost() + ways[1].lost()),
              static_cast<long long>(ways[0].taken() + ways[1].taken()));
  return 0;
}
