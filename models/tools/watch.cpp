// shale watch: plots a run in the terminal, during training and afterwards.
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/models/tools/tools.h"
#include "shale/models/training/stop_signals.h"
#include "shale/models/views/run_data.h"
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
  void draw(const std::vector<std::string>& lines) {
    std::string text = "\x1b[?2026h\x1b[H";
    for (size_t i = 0; i < lines.size(); ++i) text += cat(i > 0 ? "\r\n" : "", lines[i], "\x1b[K");
    print(text + "\x1b[J\x1b[?2026l");
  }
};

void print_once(const RunData& run) {
  Terminal terminal{.columns = 80, .rows = 40};
  std::string text;
  for (const std::string& line : watch_screen(run, terminal)) text += line + "\n";
  print(text);
}

// Reads the run again. A restarted run replaces its files, so a failed read may succeed next time.
void look_again(const std::string& run, RunData& data, int& failures) {
  constexpr int kMost = 5;  // maximum of consecutive failures
  try {
    data = read_run(run);
    failures = 0;
  } catch (const Error&) {
    if (++failures == kMost) throw;
  }
}

bool has_ended(const RunData& run) {
  return run.status && run.status->state != RunState::kRunning;
}

}  // namespace

int run_watch(int argc, const char* const* argv) {
  std::string run;
  double seconds = 1;
  bool once = false;
  ConfigSpec spec("shale watch", "shows the curves of a run in the terminal until it ends");
  spec.add_positional("run", run, "run folder (its --out)", {.required = true, .is_path = true});
  spec.section("Options");
  spec.add("every", seconds, "refresh interval", {.min = 0.1, .help = {.unit = "s"}});
  spec.add("once", once, "print once and exit, as without a terminal");
  const ParseResult parsed = parse_config(spec, argc, argv);
  if (parsed.should_exit) {
    std::fputs(parsed.output.c_str(), stdout);
    return 0;
  }
  RunData data = read_run(run);  // reports errors before switching to the other screen
  if (once || !can_redraw()) {
    print_once(data);
    return 0;
  }
  const StopSignals signals;
  {
    OtherScreen screen;
    int failures = 0;
    while (StopSignals::received() == 0) {
      screen.draw(watch_screen(data, terminal_of(STDOUT_FILENO)));
      if (has_ended(data)) break;
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
      look_again(run, data, failures);
    }
  }
  print_once(data);
  return 0;
}

}  // namespace shale::models
