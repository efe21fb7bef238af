#include "shale/runtime/data/corpus/tokenize.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <span>
#include <sstream>
#include <thread>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/runtime/data/corpus/shard_writer.h"
#include "shale/runtime/data/corpus/tokenize_state.h"
#include "shale/runtime/data/split.h"
#include "shale/runtime/data/text/text_tokens.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/runtime/io/file.h"
#include "shale/runtime/io/in_parallel.h"

namespace shale {
namespace {

using namespace corpus_internal;
using data_internal::is_held_out;
namespace fs = std::filesystem;

// Tokens of a batch, divided into parts. The parts alternate between training and validation.
struct TokenBlock {
  struct Part {
    int64_t end = 0;  // index in `tokens` where the part ends
    bool is_validation = false;
  };
  std::vector<int32_t> tokens;
  std::vector<Part> parts;
  int64_t documents = 0, val_documents = 0, val_tokens = 0;
  int64_t bytes = 0;

  void end_part(bool is_validation) {
    const int64_t begin = parts.empty() ? 0 : parts.back().end;
    if (is_validation) val_tokens += std::ssize(tokens) - begin;
    if (parts.empty() || parts.back().is_validation != is_validation) {
      parts.push_back({.is_validation = is_validation});
    }
    parts.back().end = std::ssize(tokens);
  }
};

uint32_t hash_of(std::string_view text) {
  return data_internal::split_hash(crc32c(std::as_bytes(std::span(text))), std::ssize(text));
}

// Returns the hash of a file that consists of one document.
uint32_t hash_of(const CorpusFile& file) {
  const std::unique_ptr<ByteSource> source = open_byte_source(file.path);
  std::vector<char> part(size_t{1} << 20);
  uint32_t crc = 0;
  int64_t bytes = 0;
  while (const size_t got = source->read(part)) {
    crc = crc32c(std::as_bytes(std::span(part).first(got)), crc);
    bytes += static_cast<int64_t>(got);
  }
  return data_internal::split_hash(crc, bytes);
}

// Chooses files for validation among those that consist of one document; encode() chooses among
// JSON lines. If file names mark validation data, sets the job's fraction to 0.
void hold_out_files(TokenizeJob& job) {
  std::vector<CorpusFile*> documents;
  for (CorpusFile& file : job.inputs) {
    if (file.is_validation) job.val_fraction = 0;
    // A pipe is the only input, and a document is never held out if it is the only one.
    if (!file.is_jsonl && file.pipe == nullptr) documents.push_back(&file);
  }
  if (job.val_fraction == 0) return;
  std::vector<uint32_t> hashes;
  for (const CorpusFile* file : documents) hashes.push_back(hash_of(*file));
  std::vector<bool> chosen = data_internal::hold_out(hashes, job.val_fraction);
  for (size_t i = 0; i < documents.size(); ++i) {
    // If there are JSON lines as well, some of them are held out, so no file has to be.
    const bool among_lines = documents.size() < job.inputs.size();
    documents[i]->is_validation =
        among_lines ? is_held_out(hashes[i], job.val_fraction) : chosen[i];
  }
}

TokenBlock encode(const DocumentBatch& batch, const TokenizeJob& job, TokenEncoder& encoder) {
  TokenBlock block;
  const CorpusFile& file = job.inputs[static_cast<size_t>(batch.begin.file)];
  for_each_document(batch, file, job.field, [&](std::string_view text) {
    const bool is_validation = file.is_validation || (file.is_jsonl && job.val_fraction > 0 &&
                                                      is_held_out(hash_of(text), job.val_fraction));
    const bool begins = file.is_jsonl || batch.begin.offset == 0;
    if (begins && job.begin) block.tokens.push_back(*job.begin);
    encoder.append(text, {}, block.tokens);
    if (batch.ends_document && job.end) block.tokens.push_back(*job.end);
    block.documents += batch.ends_document ? 1 : 0;
    block.val_documents += batch.ends_document && is_validation ? 1 : 0;
    block.bytes += std::ssize(text);
    block.end_part(is_validation);
  });
  return block;
}

// Returns the id of a process of this host that holds a flock on the open file; 0 if none is
// visible.
int64_t lock_holder(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return 0;
  // A line of /proc/locks is "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF", with the device in
  // hexadecimal.
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream fields(line);
    std::string number, kind, mode, access, place;
    int64_t pid = 0;
    fields >> number >> kind >> mode >> access >> pid >> place;
    unsigned device_major = 0, device_minor = 0;
    unsigned long inode = 0;
    const int read = std::sscanf(place.c_str(), "%x:%x:%lu", &device_major, &device_minor, &inode);
    if (kind == "FLOCK" && read == 3 && device_major == major(info.st_dev) &&
        device_minor == minor(info.st_dev) && inode == info.st_ino) {
      return pid;
    }
  }
  return 0;
}

bool is_stopped(int64_t pid) {
  std::ifstream file(cat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text, '\0');
  const size_t name_end = text.rfind(')');  // the process name may contain blanks and brackets
  return name_end != text.npos &&
         (text.substr(name_end, 3) == ") T" || text.substr(name_end, 3) == ") t");
}

// Locks a folder against other processes of this host, and of hosts that share its locks.
class FolderLock {
 public:
  FolderLock(const std::string& folder, const TokenizeJob& job)
      : handle_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (!handle_.is_open()) return;
    while (::flock(handle_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (!job.waits) {
        throw ConfigError(cat(folder, ": another process is writing it; wait until it ends"));
      }
      if (job.on_progress) job.on_progress({});
      look_after_holder(folder, job.stopped_patience_s);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  // Returns true if the locked folder still has this name.
  bool is_of(const std::string& folder) const {
    struct stat locked {};
    struct stat named {};
    return !handle_.is_open() ||
           (::fstat(handle_.get(), &locked) == 0 && ::stat(folder.c_str(), &named) == 0 &&
            locked.st_dev == named.st_dev && locked.st_ino == named.st_ino);
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Checks if the process that holds the lock has been stopped. If so, warns after a while and
  // throws after patience_s seconds.
  void look_after_holder(const std::string& folder, double patience_s) {
    const auto now = Clock::now();
    if (now < next_look_) return;
    next_look_ = now + std::chrono::milliseconds(500);
    const int64_t pid = lock_holder(handle_.get());
    if (pid <= 0 || !is_stopped(pid)) {
      stopped_since_.reset();
      return;
    }
    if (!stopped_since_) stopped_since_ = now;
    const double seconds = std::chrono::duration<double>(now - *stopped_since_).count();
    const std::string who =
        cat(folder, ": process ", pid, ", which makes these tokens, is stopped");
    if (seconds >= patience_s) {
      throw UnavailableError(cat(who, ", for at least ", static_cast<int64_t>(seconds),
                                 " s; continue it (kill -CONT ", pid,
                                 ") or end it, then run this again"));
    }
    if (seconds < patience_s / 20 || std::exchange(warned_, true)) return;
    log_warning(who, "; continue it (kill -CONT ", pid, ") or end it: this run waits for ",
                patience_s, " s");
  }

  FileHandle handle_;
  Clock::time_point next_look_{};
  std::optional<Clock::time_point> stopped_since_;
  bool warned_ = false;
};

TokenizeProgress progress_of(const TokenizeState& state) {
  return {.documents = state.documents,
          .bytes = state.bytes,
          .earlier_bytes = state.bytes,
          .tokens = state.tokens,
          .val_documents = state.val_documents,
          .val_tokens = state.val_tokens};
}

TokenWidth width_of(const TokenizeJob& job) {
  return data_internal::token_width(job.tokenizer->tokenizer.vocab_size());
}

// Tokenizes batches on several workers. They take batches in order, encode them in parallel, and
// write them in order. Each worker has at most one batch, which limits memory.
class Pipeline {
 public:
  Pipeline(const TokenizeJob& job, std::string folder, TokenizeState state)
      : job_(job),
        folder_(std::move(folder)),
        state_(std::move(state)),
        skip_(state_.skip),
        reader_(
            job.inputs,
            [&job](std::string_view text, size_t from) {
              return job.tokenizer->tokenizer.find_cut(text, from);
            },
            state_.next),
        train_(folder_, "tokens", width_of(job), job.shard_tokens, state_.shards),
        val_(folder_, "val", width_of(job), job.shard_tokens, state_.val_shards),
        progress_(progress_of(state_)) {
    for (const CorpusFile& file : job.inputs) progress_.total += file.bytes;
  }

  TokenizeProgress run() {
    const auto workers = static_cast<size_t>(job_.threads);
    in_parallel(workers, workers, [this](size_t, size_t) { work(); });
    if (error_ != nullptr) std::rethrow_exception(error_);
    if (progress_.val_tokens == progress_.tokens) {
      throw DataError(progress_.tokens == 0 ? "no text found in the inputs"
                                            : cat("all ", progress_.documents,
                                                  " documents are for validation; use "
                                                  "more of them, or a --val-fraction of 0"));
    }
    state_.is_complete = true;
    commit({.file = std::ssize(job_.inputs)}, 0);
    write_state(folder_, state_);
    return progress_;
  }

  int64_t shards() const { return train_.shards() + val_.shards(); }

 private:
  struct Taken {
    int64_t number = 0;  // index of the batch in the order of the inputs
    bool has_batch = false;
    std::exception_ptr problem;
    int64_t bytes = 0;  // bytes of the inputs consumed up to the end of this batch
  };

  void work() {
    TokenEncoder encoder(job_.tokenizer->tokenizer);
    DocumentBatch batch;
    while (!failed_) {
      Taken taken = take(batch);
      TokenBlock block;
      if (taken.has_batch) {
        try {
          block = encode(batch, job_, encoder);
        } catch (...) {
          taken.problem = std::current_exception();
        }
      }
      if (!put(taken, batch, block)) return;
    }
  }

  Taken take(DocumentBatch& batch) {
    const std::lock_guard lock(reading_);
    Taken taken{.number = taken_++};
    try {
      taken.has_batch = !read_failed_ && reader_.next(batch);
    } catch (...) {
      read_failed_ = true;
      taken.problem = std::current_exception();
    }
    taken.bytes = reader_.taken();
    return taken;
  }

  // Waits until all earlier batches are written, then writes this one. Returns false if no further
  // batch is needed. If several batches fail, the error of the first one in order is kept.
  bool put(const Taken& taken, const DocumentBatch& batch, const TokenBlock& block) {
    std::unique_lock lock(writing_);
    turns_.wait(lock, [&] { return failed_ || turn_ == taken.number; });
    if (failed_) return false;
    try {
      if (taken.problem != nullptr) std::rethrow_exception(taken.problem);
      progress_.taken = taken.bytes;
      if (taken.has_batch) write(batch, block);
    } catch (...) {
      error_ = std::current_exception();
      failed_ = true;
    }
    ++turn_;
    turns_.notify_all();
    return !failed_ && taken.has_batch;
  }

  void write(const DocumentBatch& batch, const TokenBlock& block) {
    int64_t done = std::exchange(skip_, 0);
    if (done > std::ssize(block.tokens)) {
      throw DataError(cat(
          folder_,
          ": the inputs have changed since tokenization began; remove the folder to start again"));
    }
    for (const TokenBlock::Part& part : block.parts) {
      ShardWriter& writer = part.is_validation ? val_ : train_;
      while (done < part.end) {
        const std::span rest = std::span(block.tokens).first(static_cast<size_t>(part.end));
        done += writer.append(rest.subspan(static_cast<size_t>(done)));
        if (!writer.is_full()) continue;
        commit(batch.begin, done);
        write_state(folder_, state_);
      }
    }
    progress_.documents += block.documents;
    progress_.val_documents += block.val_documents;
    progress_.bytes += block.bytes;
    progress_.tokens += std::ssize(block.tokens);
    progress_.val_tokens += block.val_tokens;
    if (job_.on_progress) job_.on_progress(progress_);
  }

  // Ends the current shards of training and validation. Then one position describes the state of
  // both: the next batch, and how many of its tokens are already in shards.
  void commit(const CorpusPosition& next, int64_t skip) {
    train_.commit();
    val_.commit();
    state_.shards = train_.shards();
    state_.val_shards = val_.shards();
    state_.next = next;
    state_.skip = skip;
    state_.documents = progress_.documents;
    state_.bytes = progress_.bytes;
    state_.tokens = progress_.tokens;
    state_.val_documents = progress_.val_documents;
    state_.val_tokens = progress_.val_tokens;
  }

  const TokenizeJob& job_;
  const std::string folder_;
  TokenizeState state_;  // state that was written last
  int64_t skip_;         // number of tokens of the first batch that are already in shards

  std::mutex reading_;
  BatchReader reader_;
  int64_t taken_ = 0;  // number of batches that workers have taken
  bool read_failed_ = false;

  std::mutex writing_;
  std::condition_variable turns_;
  int64_t turn_ = 0;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  ShardWriter train_, val_;
  TokenizeProgress progress_;
};

// Removes the temporary files that a killed process left behind; if `all`, removes all files.
void remove_leftovers(const std::string& folder, bool all) {
  const Folder opened = Folder::open(folder);
  for (const std::string& name : opened.names()) {
    if (all || name.starts_with('.')) opened.remove_file(name);
  }
}

// Returns the result of a completed job with this description; nullopt if `out` does not exist or
// is an empty folder. Throws ConfigError if it contains anything else.
std::optional<TokenizeProgress> find_complete(const fs::path& out, const std::string& job) {
  std::error_code error;
  if (!fs::exists(out, error) || (fs::is_directory(out, error) && fs::is_empty(out, error))) {
    return {};
  }
  const std::optional<TokenizeState> state = read_state(out.string());
  if (!state) throw ConfigError(cat(out.string(), " already exists; use another --out"));
  require_same_job(*state, job, out.string());
  return progress_of(*state);
}

bool has_pipe(const TokenizeJob& job) {
  return std::any_of(job.inputs.begin(), job.inputs.end(),
                     [](const CorpusFile& file) { return file.pipe != nullptr; });
}

void check(const TokenizeJob& job) {
  // the shard header stores the number as int32
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (job.shard_tokens < 1 || job.shard_tokens > kMost) {
    throw ConfigError(cat("shard-tokens is ", job.shard_tokens, ", expected 1 to ", kMost));
  }
  if (job.inputs.empty()) throw ConfigError("tokenize: found no inputs, expected at least one");
  if (job.inputs.size() > 1 && has_pipe(job)) {
    throw ConfigError("tokenize: a pipe must be the only input");
  }
}

// Returns "a/b" for "a/b/", so that the partial folder is next to the output folder.
fs::path out_path(const std::string& out) {
  const fs::path path = fs::path(out).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

TokenizeProgress tokenize(const TokenizeJob& asked) {
  check(asked);
  const fs::path out = out_path(asked.out);
  const std::string partial = out.string() + ".partial", description = job_json(asked);
  std::error_code error;
  std::optional<Folder> folder;
  std::optional<FolderLock> lock;
  do {
    if (const auto done = find_complete(out, description)) {
      if (!has_pipe(asked)) return *done;
      throw ConfigError(cat(out.string(), " already exists, and it is unknown whether ",
                            asked.inputs.front().name, " has the same data; use another --out"));
    }
    folder = Folder::make(partial);
    lock.emplace(partial, asked);
    // Repeats if another process has renamed or removed the folder in the meantime.
  } while (!lock->is_of(partial));
  std::optional<TokenizeState> state = read_state(partial);
  if (state) require_same_job(*state, description, partial);
  if (has_pipe(asked)) state.reset();
  remove_leftovers(partial, has_pipe(asked));
  if (!state) state = TokenizeState{.job = description};
  TokenizeJob job = asked;
  if (state->next.file > std::ssize(job.inputs)) {
    throw DataError(cat(
        partial,
        ": its saved progress is beyond the end of the inputs; remove the folder to start again"));
  }
  TokenizeProgress progress = progress_of(*state);
  if (!state->is_complete) {
    int64_t shards = state->shards + state->val_shards;
    try {
      hold_out_files(job);
      for (const auto& [name, bytes] : tokenizer_files(*job.tokenizer)) {
        write_file_atomically(partial + "/" + name, bytes);
      }
      Pipeline pipeline(job, partial, *state);
      try {
        progress = pipeline.run();
      } catch (...) {
        shards = pipeline.shards();
        throw;
      }
    } catch (...) {
      if (shards == 0) fs::remove_all(partial, error);
      throw;
    }
  }
  const fs::path parent = out.has_parent_path() ? out.parent_path() : fs::path(".");
  const Folder above = Folder::open(parent.string());
  above.rename(fs::path(partial).filename().string(), out.filename().string());
  above.sync();
  return progress;
}

}  // namespace shale
