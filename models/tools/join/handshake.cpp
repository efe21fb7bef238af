#include "shale/models/tools/join/handshake.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/base/version.h"
#include "shale/models/tools/join/hmac_sha256.h"
#include "shale/models/training/checks/health_check.h"

namespace shale::models {
namespace {

constexpr std::string_view kProtocol = "shale join 1\n";
constexpr size_t kNonce = 32, kProof = 32;  // sizes in bytes
// Characters; a shorter token could be guessed from a recorded handshake.
constexpr size_t kShortestToken = 16;
constexpr size_t kLongestText = 256;   // maximum length of a name
constexpr size_t kLongestList = 1024;  // maximum length of the list of networks
constexpr int64_t kMost = 1 << 20;     // maximum number of ranks, GPUs or CPUs

Secrets secrets_of(const std::string& token, std::string_view challenge, std::string_view nonce,
                   std::string_view text) {
  const auto derive = [&](const char* what) {
    return hmac_sha256(token, cat(what, '\n', challenge, nonce, text));
  };
  return {.node_proof = derive("node"),
          .head_proof = derive("head"),
          .to_head = derive("to head"),
          .to_node = derive("to node")};
}

int64_t number(const std::string& what, std::string_view text, int64_t least, int64_t most) {
  const auto value = parse_int(text);
  if (value && *value >= least && *value <= most) return *value;
  throw ConfigError(
      cat(what, ": expected a number from ", least, " to ", most, ", found '", excerpt(text), "'"));
}

}  // namespace

std::string this_build() {
  return cat(shale_version(), " (build ", build_id(), ")");
}

std::string hello_text(const Hello& hello) {
  return cat(hello.build, '\n', hello.host.substr(0, kLongestText), '\n',
             hello.networks.substr(0, kLongestList), '\n', hello.rank, '\n', hello.gpus, '\n',
             hello.cpus, '\n', hello.waits ? 1 : 0);
}

Hello parse_hello(std::string_view text) {
  std::istringstream lines{std::string(text)};
  Hello hello;
  std::getline(lines, hello.build);
  std::getline(lines, hello.host);
  std::getline(lines, hello.networks);
  lines >> hello.rank >> hello.gpus >> hello.cpus >> hello.waits;
  const auto fits = [](int64_t value) { return value >= -1 && value <= kMost; };
  if (!lines || hello.build.size() > kLongestText || hello.host.size() > kLongestText ||
      hello.networks.find_first_not_of("0123456789./ ") != std::string::npos || !fits(hello.rank) ||
      !fits(hello.gpus) || !fits(hello.cpus)) {
    throw DataError(cat("expected the description of a node, found '", excerpt(text), "'"));
  }
  hello.build = printable(hello.build);
  hello.host = printable(hello.host);
  return hello;
}

std::string make_challenge() {
  return cat(kProtocol, random_bytes(kNonce));
}

bool is_challenge(std::string_view payload) {
  return payload.starts_with(kProtocol) && payload.size() == kProtocol.size() + kNonce;
}

Answer answer(const std::string& token, std::string_view challenge, const Hello& hello) {
  const std::string nonce = random_bytes(kNonce), text = hello_text(hello);
  Secrets secrets = secrets_of(token, challenge, nonce, text);
  return {.payload = nonce + secrets.node_proof + text, .secrets = std::move(secrets)};
}

std::optional<Accepted> accept_answer(const std::string& token, std::string_view challenge,
                                      std::string_view payload) {
  if (payload.size() < kNonce + kProof) return {};
  const std::string_view text = payload.substr(kNonce + kProof);
  Secrets secrets = secrets_of(token, challenge, payload.substr(0, kNonce), text);
  if (!same_digest(secrets.node_proof, payload.substr(kNonce, kProof))) return {};
  return Accepted{.hello = parse_hello(text), .secrets = std::move(secrets)};
}

std::string read_token(const Variables& variables) {
  std::string token, from = "SHALE_TOKEN";
  if (const char* text = variables("SHALE_TOKEN")) {
    token = text;
  } else if (const char* path = variables("SHALE_TOKEN_FILE")) {
    std::ifstream file(path);
    if (!file) throw MissingInputError(cat("SHALE_TOKEN_FILE: ", path, " cannot be read"));
    token.assign(std::istreambuf_iterator<char>(file), {});
    token.erase(token.find_last_not_of(" \t\r\n") + 1);
    from = path;
  } else {
    throw ConfigError(
        "expected a secret in SHALE_TOKEN, the same on all nodes, or in a file named by "
        "SHALE_TOKEN_FILE; for example: export SHALE_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d "
        "' ')");
  }
  if (token.size() < kShortestToken) {
    throw ConfigError(
        cat(from, ": expected at least ", kShortestToken, " characters, found ", token.size()));
  }
  return token;
}

std::string take_token() {
  std::string token = read_token([](const char* name) { return std::getenv(name); });
  unsetenv("SHALE_TOKEN");
  return token;
}

std::optional<TorchPlace> torch_place(const Variables& variables) {
  const auto text = [&](const char* name, const char* other = nullptr) {
    const char* value = variables(name);
    if (value == nullptr && other != nullptr) value = variables(other);
    return value == nullptr ? std::string() : std::string(value);
  };
  const std::string local_rank = text("LOCAL_RANK");
  // Kubeflow starts one process for each pod, whose variables PET_... number the pods.
  const bool by_pod = local_rank.empty() && !text("PET_NNODES").empty();
  const char* const size_name = by_pod ? "PET_NNODES" : "WORLD_SIZE";
  const char* const rank_name = by_pod ? "PET_NODE_RANK" : "RANK";
  TorchPlace place{.address = text("MASTER_ADDR", "PET_MASTER_ADDR")};
  if (place.address.empty() || text(size_name).empty() || text(rank_name).empty()) return {};
  place.processes = number(size_name, text(size_name), 1, kMost);
  place.rank = number(rank_name, text(rank_name), 0, place.processes - 1);
  const std::string port = text("MASTER_PORT", "PET_MASTER_PORT");
  place.port = port.empty() ? 29500 : number("MASTER_PORT", port, 1, 65534);
  // torchrun itself listens on the port.
  if (variables("TORCHELASTIC_RUN_ID") != nullptr) ++place.port;
  place.waits = !local_rank.empty() && number("LOCAL_RANK", local_rank, 0, kMost) != 0;
  return place;
}

}  // namespace shale::models
