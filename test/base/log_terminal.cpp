// Tests the status line on a pseudo-terminal.
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "shale/base/log.h"
#include "shale/test/support/catch.h"

namespace shale {
namespace {

class Terminal {
 public:
  explicit Terminal(unsigned short columns) : master_(posix_openpt(O_RDWR | O_NOCTTY)) {
    if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0) return;
    const int slave = open(ptsname(master_), O_RDWR | O_NOCTTY);
    if (slave < 0) return;
    termios settings{};
    tcgetattr(slave, &settings);
    settings.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // "\n" does not become "\r\n"
    tcsetattr(slave, TCSANOW, &settings);
    const winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ioctl(slave, TIOCSWINSZ, &size);
    file.reset(fdopen(slave, "w"));
  }
  ~Terminal() {
    file.reset();
    if (master_ >= 0) close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Reads as much output as `want` has, and leaves later output for the next call. A
  // pseudo-terminal delivers text late and in pieces, so this waits.
  std::string shown_instead_of(const std::string& want) const {
    std::string text;
    pollfd poll_master = {.fd = master_, .events = POLLIN, .revents = 0};
    while (text.size() < want.size() && poll(&poll_master, 1, /*timeout ms*/ 10000) == 1) {
      std::array<char, 4096> buffer{};
      const ssize_t count = read(master_, buffer.data(), want.size() - text.size());
      if (count <= 0) break;
      text.append(buffer.data(), static_cast<size_t>(count));
    }
    return text;
  }

  std::unique_ptr<FILE, int (*)(FILE*)> file{nullptr, std::fclose};

 private:
  const int master_;
};

const std::string kClear = "\r\x1b[K";

bool shows(const Terminal& terminal, const std::string& want) {
  const std::string shown = terminal.shown_instead_of(want);
  UNSCOPED_INFO("shown: " << shown);
  return shown == want;
}

}  // namespace

TEST_CASE("on a terminal the status line stays below what is printed", "[log]") {
  const Terminal terminal(80);
  if (!terminal.file) {
    WARN("skipped: no pseudo-terminals here");
    return;
  }
  setenv("NO_COLOR", "1", 1);
  Logger log({.out = terminal.file.get(), .err = terminal.file.get()});
  REQUIRE(log.has_status_line());
  log.status("10%");
  CHECK(shows(terminal, kClear + "10%"));
  log.info("saved");
  CHECK(shows(terminal, kClear + "saved\n10%"));
  log.warning("slow");
  CHECK(shows(terminal, kClear + "warning: slow\n10%"));
  log.status("");
  CHECK(shows(terminal, kClear));
  log.info("done");
  CHECK(shows(terminal, "done\n"));
}

TEST_CASE("the status line is cut to the terminal, so that it never wraps", "[log]") {
  const Terminal terminal(10);
  if (!terminal.file) {
    WARN("skipped: no pseudo-terminals here");
    return;
  }
  Logger log({.out = terminal.file.get(), .err = terminal.file.get()});
  log.status("0123456789abc");
  log.status("");  // removes the status line without printing another
  CHECK(shows(terminal, kClear + "012345678" + kClear));
}

TEST_CASE("quiet and other ranks have no status line on a terminal either", "[log]") {
  const Terminal terminal(80);
  if (!terminal.file) {
    WARN("skipped: no pseudo-terminals here");
    return;
  }
  FILE* const file = terminal.file.get();
  CHECK_FALSE(Logger({.quiet = true, .out = file, .err = file}).has_status_line());
  CHECK_FALSE(Logger({.rank = 1, .out = file, .err = file}).has_status_line());
}

}  // namespace shale
