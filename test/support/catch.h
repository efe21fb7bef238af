#pragma once

// Catch2 version 2 or 3, whichever the build found: tests are written once. Approx is global.
// Matchers differ between the versions; for exceptions use message_of and contains below.
#include <catch2/catch.hpp>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace shale::test {

// Runs fn and returns the message of the E it throws. Fails the test if it throws nothing or
// something else.
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
