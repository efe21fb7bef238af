// Runs the test cases declared with catch2/catch.hpp, the small test framework beside this file.
#include <catch2/catch.hpp>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string_view>

namespace Catch {
namespace {

// The value that GENERATE yields in one run of a test case.
struct Generator {
  size_t index = 0, count = 0;
};

struct State {
  std::vector<std::string> messages;  // INFO messages of open scopes
  std::vector<Generator> generators;  // generators in the order in which the test case reaches them
  size_t met = 0;                     // number of generators that this run has reached
  int64_t assertions = 0, failures = 0;
};

State& state() {
  static State the_only;
  return the_only;
}

// Chooses the next combination of generated values; returns false after the last one.
bool advance() {
  auto& generators = state().generators;
  while (!generators.empty()) {
    if (++generators.back().index < generators.back().count) return true;
    generators.pop_back();
  }
  return false;
}

void run_once(const TestCase& test) {
  const Where where{test.file.c_str(), test.line};
  state().met = 0;
  try {
    test.body();
  } catch (const FailedRequirement&) {
  } catch (const Skipped&) {
    throw;
  } catch (const std::exception& error) {
    assertion(false, where, "TEST_CASE", "", std::string("unexpected exception: ") + error.what());
  }
}

// Returns true if the test matches all of `terms`. A term is a tag or part of a name, and "~"
// negates it: "[gemm]~[#gemm_plan]".
bool matches_all(const TestCase& test, std::string_view terms) {
  while (!terms.empty()) {
    const bool wanted = terms.front() != '~';
    if (!wanted) terms.remove_prefix(1);
    const size_t end = terms.starts_with('[') ? terms.find(']') : std::string_view::npos;
    const std::string_view term = terms.substr(0, end == terms.npos ? end : end + 1);
    const std::string& where = end == terms.npos ? test.name : test.tags;
    if ((where.find(term) != std::string::npos) != wanted) return false;
    terms.remove_prefix(term.size());
  }
  return true;
}

bool matches(const TestCase& test, std::string_view filter) {
  while (true) {
    const size_t comma = filter.find(',');
    if (matches_all(test, filter.substr(0, comma))) return true;
    if (comma == filter.npos) return false;
    filter.remove_prefix(comma + 1);
  }
}

}  // namespace

std::vector<TestCase>& test_cases() {
  static std::vector<TestCase> all;
  return all;
}

bool add_case(std::string name, const char* tags, const char* file, int line,
              std::function<void()> body) {
  const std::string stem = std::filesystem::path(file).stem().string();
  test_cases().push_back(
      {std::move(name), std::string(tags) + "[#" + stem + "]", file, line, std::move(body)});
  return true;
}

void assertion(bool passed, Where where, const char* macro, const char* expression,
               const std::string& expansion) {
  ++state().assertions;
  if (passed) return;
  ++state().failures;
  std::printf("%s:%d: FAILED: %s(%s)\n", where.file, where.line, macro, expression);
  if (!expansion.empty()) std::printf("  with: %s\n", expansion.c_str());
  for (const std::string& message : state().messages) std::printf("  %s\n", message.c_str());
  std::fflush(stdout);
}

void print_message(Where where, const std::string& text) {
  std::printf("%s:%d: %s\n", where.file, where.line, text.c_str());
}

ScopedMessage::ScopedMessage(std::string text) {
  state().messages.push_back(std::move(text));
}
ScopedMessage::~ScopedMessage() {
  state().messages.pop_back();
}

size_t choose(size_t count) {
  State& s = state();
  if (s.met == s.generators.size()) s.generators.push_back({0, count});
  return s.generators[s.met++].index;
}

int run(const std::string& filter, bool only_list) {
  int passed = 0, failed = 0, skipped = 0;
  for (const TestCase& test : test_cases()) {
    if (!matches(test, filter)) continue;
    if (only_list) {
      std::printf("%s\n", test.name.c_str());
      continue;
    }
    const int64_t failures = state().failures, assertions = state().assertions;
    bool was_skipped = false;
    try {
      do {
        run_once(test);
      } while (advance());
    } catch (const Skipped& skip) {
      std::printf("skipped: %s: %s\n", test.name.c_str(), skip.why.c_str());
      was_skipped = true;
    }
    state().generators.clear();
    if (!was_skipped && state().assertions == assertions) {
      assertion(false, {test.file.c_str(), test.line}, "TEST_CASE", "", "it checked nothing");
    }
    if (state().failures != failures) {
      std::printf("failed: %s\n", test.name.c_str());
      ++failed;
    } else {
      ++(was_skipped ? skipped : passed);
    }
  }
  if (only_list) return 0;
  std::printf("%d test cases passed, %d failed, %d skipped; %lld assertions\n", passed, failed,
              skipped, static_cast<long long>(state().assertions));
  return failed == 0 && passed + skipped > 0 ? 0 : 1;
}

}  // namespace Catch

// Accepts two of Catch2's arguments: --list-test-names-only, and a filter such as
// "[gemm]~[#gemm_plan],part of a name". Tags of file names are always added (--filenames-as-tags).
int main(int argc, char** argv) {
  std::string filter;
  bool only_list = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--list-test-names-only") {
      only_list = true;
    } else if (argument != "--filenames-as-tags") {
      filter = argument;
    }
  }
  return Catch::run(filter, only_list);
}
