#include "shale/models/tools/join/handshake.h"

#include <sys/socket.h>

#include <map>
#include <memory>
#include <random>

#include "shale/base/error.h"
#include "shale/models/tools/join/frame_stream.h"
#include "shale/models/tools/join/hmac_sha256.h"
#include "shale/models/tools/join/socket_address.h"
#include "shale/test/support/catch.h"

namespace shale::models {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    for (const int shift : {4, 0}) text += "0123456789abcdef"[byte >> shift & 15];
  }
  return text;
}

struct Ends {  // The two ends of a connection.
  Ends() {
    int made[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, made) == 0);
    a = std::make_unique<FrameStream>(made[0]);
    b = std::make_unique<FrameStream>(made[1]);
    raw = made[0];
  }
  std::optional<Frame> receive() const {
    a->exchange();
    b->exchange();
    return b->next();
  }
  std::unique_ptr<FrameStream> a, b;
  int raw = -1;  // socket of stream `a`, for writing raw bytes
};

Variables variables_of(std::map<std::string, std::string> map) {
  return [map = std::move(map)](const char* name) -> const char* {
    const auto found = map.find(name);
    return found == map.end() ? nullptr : found->second.c_str();
  };
}

TEST_CASE("SHA-256 and its HMAC have the digests of FIPS 180-4 and RFC 4231") {
  CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hex(sha256(std::string(1000000, 'a'))) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  CHECK(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex(hmac_sha256(std::string(131, '\xaa'),
                        "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("head and node agree on keys, and a wrong token or a changed message is found") {
  const std::string token = "sixteen characters", challenge = make_challenge();
  CHECK(is_challenge(challenge));
  CHECK(!is_challenge(challenge + "x"));
  CHECK(make_challenge() != challenge);
  const Hello hello{.build = "0.2 (x)",
                    .host = "a",
                    .rank = 3,
                    .gpus = 8,
                    .cpus = 64,
                    .networks = "10.0.0.2/24",
                    .waits = true};
  const Answer own = answer(token, challenge, hello);
  CHECK(own.payload.find(token) == std::string::npos);
  const auto accepted = accept_answer(token, challenge, own.payload);
  REQUIRE(accepted);
  CHECK(hello_text(accepted->hello) == hello_text(hello));
  CHECK(accepted->secrets.head_proof == own.secrets.head_proof);
  CHECK(accepted->secrets.to_node == own.secrets.to_node);
  CHECK(own.secrets.to_head != own.secrets.to_node);
  CHECK(own.secrets.head_proof != own.secrets.node_proof);
  CHECK(!accept_answer("another characters", challenge, own.payload));
  // An answer that was recorded for another challenge.
  CHECK(!accept_answer(token, make_challenge(), own.payload));
  for (size_t i = 0; i < own.payload.size(); ++i) {
    std::string changed = own.payload;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    CHECK(!accept_answer(token, challenge, changed));
    CHECK(!accept_answer(token, challenge, own.payload.substr(0, i)));
  }
  CHECK_THROWS_AS(parse_hello("0.2\na\n\n1\n2\n3"), DataError);
  CHECK_THROWS_AS(parse_hello("0.2\na\n\n1\n-2\n3\n0"), DataError);
  CHECK_THROWS_AS(parse_hello("0.2\n" + std::string(300, 'a') + "\n\n1\n2\n3\n0"), DataError);
}

TEST_CASE("frames arrive as they were sent, and forged, repeated or changed ones are found") {
  const std::string key_a(32, 'a'), key_b(32, 'b');
  Ends ends;
  ends.a->send(FrameType::kStart, "before the keys");
  CHECK(ends.receive()->payload == "before the keys");
  ends.a->set_keys(key_a, key_b);
  ends.b->set_keys(key_b, key_a);
  const std::string large(100000, 'x');
  ends.a->send(FrameType::kOutput, large);
  ends.a->send(FrameType::kPing);
  std::optional<Frame> frame;
  for (int i = 0; i < 100 && !frame; ++i) frame = ends.receive();
  REQUIRE(frame);
  CHECK(frame->payload == large);
  CHECK(ends.receive()->type == FrameType::kPing);

  // Sends a frame, and then the same frame with the same MAC again, as in a replay.
  const std::string ping("p\0\0\0\0", 5);
  const auto mac = [&](char count) {
    return hmac_sha256(key_a, std::string(7, '\0') + count + ping).substr(0, 16);
  };
  const auto write_raw = [&](const std::string& text) {
    REQUIRE(::send(ends.raw, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  };
  write_raw(ping + mac(2));
  CHECK(ends.receive()->type == FrameType::kPing);
  write_raw(ping + mac(2));
  CHECK_THROWS_AS(ends.receive(), CommError);
}

TEST_CASE("strangers' bytes are refused without waiting, or wait for more") {
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    const Ends ends;
    std::string bytes(random() % 200, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (round % 2 == 0) bytes = cat("h", std::string("\0\0", 2), bytes);
    if (!bytes.empty()) REQUIRE(::send(ends.raw, bytes.data(), bytes.size(), 0) > 0);
    try {
      while (const auto frame = ends.receive()) {
        CHECK(frame->payload.size() <= FrameStream::kShort);
        CHECK(!accept_answer("sixteen characters", make_challenge(), frame->payload));
      }
    } catch (const CommError&) {
      ++refused;
    }
    try {
      static_cast<void>(parse_hello(bytes));
    } catch (const DataError&) {
    }
  }
  CHECK(refused > 1000);
  const Ends ends;
  const std::string_view large("h\0\0\x10\x01", 5);
  REQUIRE(::send(ends.raw, large.data(), large.size(), 0) == 5);
  CHECK(test::message_of<CommError>([&] { ends.receive(); }) ==
        "expected a message of at most 4096 bytes, found 4097");
}

TEST_CASE("a place in a run is read from the variables of torchrun and of Kubeflow") {
  CHECK(!torch_place(variables_of({})));
  CHECK(!torch_place(variables_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}})));
  std::map<std::string, std::string> map = {
      {"RANK", "5"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "a"}, {"LOCAL_RANK", "1"}};
  auto place = torch_place(variables_of(map));
  REQUIRE(place);
  CHECK(place->rank == 5);
  CHECK(place->processes == 8);
  CHECK(place->port == 29500);
  CHECK(place->waits);
  map["LOCAL_RANK"] = "0";
  map["MASTER_PORT"] = "1234";
  map["TORCHELASTIC_RUN_ID"] = "none";  // torchrun itself listens on MASTER_PORT
  place = torch_place(variables_of(map));
  CHECK(!place->waits);
  CHECK(place->port == 1235);
  for (const char* bad : {"8", "-1", "x", "1e9"}) {
    map["RANK"] = bad;
    CHECK_THROWS_AS(torch_place(variables_of(map)), ConfigError);
  }
  place = torch_place(variables_of({{"PET_NNODES", "4"},
                                    {"PET_NPROC_PER_NODE", "8"},
                                    {"PET_NODE_RANK", "3"},
                                    {"PET_MASTER_ADDR", "job-node-0-0.job"},
                                    {"PET_MASTER_PORT", "29400"}}));
  REQUIRE(place);
  CHECK(place->processes == 4);
  CHECK(place->rank == 3);
  CHECK(place->address == "job-node-0-0.job");
  CHECK(place->port == 29400);
  CHECK_THROWS_AS(torch_place(variables_of(
                      {{"PET_NNODES", "1:4"}, {"PET_NODE_RANK", "0"}, {"MASTER_ADDR", "a"}})),
                  ConfigError);
}

TEST_CASE("addresses are a host and a port") {
  CHECK(parse_host_port("x", "a.b:80").host == "a.b");
  CHECK(parse_host_port("x", "[::1]:80").host == "::1");
  CHECK(parse_host_port("x", ":80").host.empty());
  CHECK(parse_host_port("x", ":65535").port == 65535);
  for (const char* bad : {"", "a", "a:", "a:0", "a:65536", "a:-1", "::1:80", "a:8x"}) {
    CHECK_THROWS_AS(parse_host_port("x", bad), ConfigError);
  }
}

TEST_CASE("a token is long, and comes from a variable or a file") {
  CHECK(read_token(variables_of({{"SHALE_TOKEN", "0123456789abcdef"}})) == "0123456789abcdef");
  CHECK_THROWS_AS(read_token(variables_of({{"SHALE_TOKEN", "0123456789abcde"}})), ConfigError);
  CHECK_THROWS_AS(read_token(variables_of({})), ConfigError);
  CHECK_THROWS_AS(read_token(variables_of({{"SHALE_TOKEN_FILE", "/nowhere"}})), MissingInputError);
}

}  // namespace
}  // namespace shale::models
