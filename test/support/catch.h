#pragma once

// Includes Catch2 version 2 or 3, whichever the build has found, so that tests need only one form.
// Approx is global. Matchers differ between the versions, so tests check exceptions by message_of
// and contains below.
#include <catch2/catch.hpp>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace shale::test {

// Runs fn and returns the message of the exception E that it throws. Fails the test if fn throws
// nothing, or another exception.
template <typename E, typename Fn>
std::string message_of(Fn&& fn) {
  try {
    std::forward<Fn>(fn)();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    FAIL("another exception: " << error.what());
  }
  FAIL("no exception");
  return {};
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace shale::test
