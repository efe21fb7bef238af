#include "shale/base/failure.h"

#include <filesystem>
#include <new>
#include <system_error>

#include "shale/test/support/catch.h"

namespace shale {
namespace {

template <typename Call>
Failure failure_in(const Call& call) {
  try {
    call();
  } catch (...) {
    return failure_of(std::current_exception());
  }
  return {ExitCode::kOk, ""};
}

}  // namespace

TEST_CASE("an exception ends a program with the documented code", "[base]") {
  namespace fs = std::filesystem;
  CHECK(failure_in([] { throw DataError("a"); }).code == ExitCode::kData);
  CHECK(failure_in([] { throw std::bad_alloc(); }).code == ExitCode::kOutOfMemory);
  CHECK(failure_in([] { throw std::logic_error("a"); }).code == ExitCode::kInternal);
  CHECK(failure_in([] { throw 1; }).code == ExitCode::kInternal);
  const auto no_thread = std::make_error_code(std::errc::resource_unavailable_try_again);
  CHECK(failure_in([&] { throw std::system_error(no_thread); }).code == ExitCode::kOutOfMemory);

  const Failure missing = failure_in([] { static_cast<void>(fs::file_size("/nowhere/a")); });
  CHECK(missing.code == ExitCode::kMissingInput);
  CHECK(missing.message == "/nowhere/a: cannot be accessed: No such file or directory");
  const Failure too_long = failure_in([] { static_cast<void>(fs::exists("/" + std::string(300, 'a'))); });
  CHECK(too_long.code == ExitCode::kDisk);
  CHECK(test::contains(too_long.message, "aaa: cannot be accessed: File name too"));
  const Failure two = failure_in([] { fs::rename("/nowhere/a", "/nowhere/b"); });
  CHECK(test::contains(two.message, "/nowhere/a and /nowhere/b: "));
}

TEST_CASE("a message keeps the lines of its tables, and no others", "[base]") {
  CHECK(printable_message("a\n  b  1\n  c  2\x1b") == "a\n  b  1\n  c  2\\x1b");
  CHECK(printable_message("a\nerror: b\n") == "a\\x0aerror: b\\x0a");
  CHECK(printable_message("") == "");
}

}  // namespace shale
