#pragma once

#include <string>
#include <string_view>

namespace shale::models {

// Returns the SHA-256 digest of `data` (FIPS 180-4): 32 bytes.
std::string sha256(std::string_view data);

// Returns the HMAC-SHA256 of `data` (RFC 2104): 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view data);

// Compares two digests in a time that does not depend on where they differ.
bool same_digest(std::string_view a, std::string_view b);

// Returns bytes of the kernel's random generator. Throws UnavailableError.
std::string random_bytes(size_t count);

}  // namespace shale::models
