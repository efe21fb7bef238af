#include "shale/base/failure.h"

#include <cstdio>
#include <filesystem>
#include <new>
#include <system_error>

#include "shale/base/parse.h"

namespace shale {
namespace {

// The standard library's text begins with "filesystem error: status: " and ends with the path.
Failure file_failure(const std::filesystem::filesystem_error& error) {
  const bool is_missing = error.code() == std::errc::no_such_file_or_directory ||
                          error.code() == std::errc::not_a_directory;
  const std::string second = error.path2().empty() ? "" : cat(" and ", error.path2().string());
  const std::string place = cat(error.path1().string(), second);
  return {is_missing ? ExitCode::kMissingInput : ExitCode::kDisk,
          cat(place.empty() ? "a file" : place, ": cannot be accessed: ", error.code().message())};
}

}  // namespace

Failure failure_of(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return {e.code(), e.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::kOutOfMemory, "out of memory"};
  } catch (const std::filesystem::filesystem_error& e) {
    return file_failure(e);
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::resource_unavailable_try_again) {
      return {ExitCode::kInternal, e.what()};
    }
    // The user's limit of threads is reached, or there is no memory for another one.
    return {ExitCode::kOutOfMemory, cat("a thread could not be started: ", e.what(),
                                        "; raise ulimit -u (threads) or ulimit -v (memory)")};
  } catch (const std::exception& e) {
    return {ExitCode::kInternal, e.what()};
  } catch (...) {
    return {ExitCode::kInternal, "an exception of unknown type"};
  }
}

std::string printable_message(std::string_view message) {
  constexpr std::string_view kLine = "\n  ";
  std::string shown;
  while (true) {
    const size_t end = message.find(kLine);
    shown += printable(message.substr(0, end));
    if (end == message.npos) return shown;
    shown += kLine;
    message.remove_prefix(end + kLine.size());
  }
}

void print_error(std::string_view message) {
  std::fflush(stdout);
  const std::string line = cat("error: ", printable_message(message), "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);  // one write: lines of several ranks do not mix
  std::fflush(stderr);
}

}  // namespace shale
