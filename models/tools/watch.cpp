// shale watch: shows a run in the terminal or in a browser, during training and afterwards.
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/models/tools/tool_table.h"
#include "shale/models/tools/tools.h"
#include "shale/models/training/report/http_server.h"
#include "shale/models/training/stop_signals.h"
#include "shale/models/views/run_data.h"
#include "shale/models/views/run_page.h"
#include "shale/models/views/watch_screen.h"

namespace shale::models {
namespace {

Terminal terminal_of(int fd) {
  Terminal terminal;
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    terminal.columns = size.ws_col;
    terminal.rows = size.ws_row;
  }
  const char* const no_color = std::getenv("NO_COLOR");  // convention of no-color.org
  terminal.has_color = no_color == nullptr || *no_color == '\0';
  return terminal;
}

// Returns true if the terminal supports cursor movement.
bool can_redraw() {
  const char* const term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw DiskError("shale watch: cannot write to standard output");
  }
}

// Alternate screen of the terminal, without cursor; the destructor restores the main screen.
class OtherScreen {
 public:
  OtherScreen() { print("\x1b[?1049h\x1b[?25l"); }
  ~OtherScreen() {
    std::fputs("\x1b[?25h\x1b[?1049l", stdout);
    std::fflush(stdout);
  }
  OtherScreen(const OtherScreen&) = delete;
  OtherScreen& operator=(const OtherScreen&) = delete;

  // Draws all lines in one update if the terminal supports synchronized updates (mode 2026).
  void draw(const std::vector<std::string>& lines) const {
    std::string text = "\x1b[?2026h\x1b[H";
    for (size_t i = 0; i < lines.size(); ++i) text += cat(i > 0 ? "\r\n" : "", lines[i], "\x1b[K");
    print(text + "\x1b[J\x1b[?2026l");
  }
};

void print_once(const RunData& run) {
  std::string text;
  for (const std::string& line : watch_screen(run, {.columns = 80, .rows = 40}))
    text += line + "\n";
  print(text);
}

// Reads a run again and again. A restarted run replaces its files, so a read that fails may succeed
// next time.
class Watched {
 public:
  explicit Watched(const std::string& run) : folder_(run), reader_(run) {}

  // Returns nullptr while the folder has no metrics yet. Throws what RunReader does.
  const RunData* look() {
    constexpr int kMost = 5;  // maximum of consecutive failures
    try {
      run_ = &reader_.read();
      failures_ = 0;
    } catch (const MissingInputError&) {
      if (run_ != nullptr ? ++failures_ == kMost : !std::filesystem::is_directory(folder_)) throw;
    } catch (const Error&) {
      if (run_ == nullptr || ++failures_ == kMost) throw;
    }
    return run_;
  }

 private:
  const std::string folder_;
  RunReader reader_;
  const RunData* run_ = nullptr;
  int failures_ = 0;
};

bool has_ended(const RunData* run) {
  return run != nullptr && run->state != "running" && run->state != "unknown";
}

// Draws the run in the terminal until it ends.
void watch_in_terminal(Watched& watched, const std::string& name, double seconds) {
  const RunData* run = nullptr;
  {
    const OtherScreen screen;
    const StopSignals signals;
    while (StopSignals::received() == 0) {
      run = watched.look();
      screen.draw(run != nullptr ? watch_screen(*run, terminal_of(STDOUT_FILENO))
                                 : std::vector{cat(printable(name), ": no step yet")});
      if (has_ended(run)) break;
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    }
  }
  if (run != nullptr) print_once(*run);
}

// Serves the page and its feed on the loopback interface until a signal comes.
void watch_in_browser(Watched& watched, int64_t port, double seconds) {
  const StopSignals signals;
  std::mutex mutex;
  std::string newest;
  const auto update = [&] {
    const RunData* const run = watched.look();
    std::string feed = run_feed(std::span(run, run != nullptr ? 1 : 0));
    const std::lock_guard lock(mutex);
    newest = std::move(feed);
  };
  update();
  const HttpServer server(std::to_string(port),
                          [&](std::string_view path) -> std::optional<HttpServer::Page> {
                            if (path == "/")
                              return HttpServer::Page{"text/html; charset=utf-8", run_page("")};
                            if (path != "/feed.json") return std::nullopt;
                            const std::lock_guard lock(mutex);
                            return HttpServer::Page{"application/json", newest};
                          });
  print(cat("open http://127.0.0.1:", server.port(),
            "/ in a browser of this machine; Ctrl-C ends\n"));
  while (StopSignals::received() == 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    update();
  }
}

}  // namespace

int run_watch(int argc, const char* const* argv) {
  std::string run;
  double seconds = 1;
  bool once = false, web = false;
  int64_t port = 0;
  ConfigSpec spec("shale watch", "shows the curves of a run until it ends");
  spec.add_positional("run", run, "run folder (its --out)", {.required = true, .is_path = true});
  spec.section("Options");
  spec.add("every", seconds, "refresh interval", {.min = 0.1, .help = {.unit = "s"}});
  spec.add("once", once, "print once and exit; the default without a terminal");
  spec.add("web", web, "serve the page of shale report, live, to browsers of this machine only");
  spec.add("port", port, "port of --web; 0: any free port", {.min = 0, .max = 65535});
  spec.needs("port", "--web");
  spec.example("shale watch out --web --port 8080");
  if (parse_or_print(spec, argc, argv)) return 0;
  if (web && once) throw ConfigError("--web serves until it is stopped; leave out --once");
  Watched watched(run);
  if (web) {
    watch_in_browser(watched, port, seconds);
  } else if (!once && can_redraw()) {
    watched.look();  // throws errors before the terminal switches to its other screen
    watch_in_terminal(watched, run, seconds);
  } else {
    print_once(RunReader(run).read());
  }
  return 0;
}

}  // namespace shale::models
