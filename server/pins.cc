#include "server/pins.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/log.h"

namespace folio {
namespace {

// Says that there is news of a stream. Shared with the stream's callback, which may still run when the end was taken.
class News {
 public:
  void tell() {
    const std::lock_guard lock(mutex_);
    there_ = true;
    changed_.notify_one();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return std::exchange(there_, false); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool there_ = false;
};

struct Ended {
  RequestId id = 0;
  StreamEnd end;
};

Result<Ended> run_to_end(Engine& engine, GenerationRequest request) {
  const auto news = std::make_shared<News>();
  const auto stream = std::make_shared<TokenStream>([news] { news->tell(); });
  const auto id = engine.submit(std::move(request), stream);
  if (!id) return id.error();
  while (true) {
    const auto taken = stream->take();
    if (taken.end && taken.end->error) return *taken.end->error;
    if (taken.end) return Ended{*id, *taken.end};
    if (taken.empty()) news->wait();  // news is told of an empty stream alone
  }
}

v1::ChatRequest chat_with(const std::string& system, const std::string& user) {
  v1::ChatRequest request;
  v1::ChatMessage& first = *request.add_messages();
  first.set_role("system");
  first.set_content(system);
  v1::ChatMessage& second = *request.add_messages();
  second.set_role("user");
  second.set_content(user);
  return request;
}

[[noreturn]] void fail(const PinnedPrefix& pin, const std::string& what) {
  throw std::runtime_error(pin.where + ": " + what);
}

void pin_prefix(Engine& engine, const Generation& generation, std::int32_t block_size, const PinnedPrefix& pin) {
  auto ids = prefix_ids(generation, pin);
  if (!ids) fail(pin, ids.error().message);
  const auto num_tokens = static_cast<std::int64_t>(ids->size());
  if (num_tokens < block_size) {
    fail(pin, "its " + std::to_string(num_tokens) + " tokens do not fill a block of " + std::to_string(block_size));
  }
  GenerationRequest request;
  request.prompt = std::move(*ids);
  request.sampling.temperature = 0;
  request.stopping.max_tokens = 1;
  Caller caller;
  if (pin.tenant) {
    caller.tenant = *pin.tenant;
    caller.share_prefix = false;
  }
  request.tenant = tenant_of(caller, "");
  request.cache.salt = cache_domain(caller, pin.salt);
  request.cache.pin_ms = pin.ms;
  const auto ended = run_to_end(engine, std::move(request));
  if (!ended) fail(pin, ended.error().message);
  const std::int64_t num_pinned = ended->end.usage.pinned_tokens;
  if (num_pinned == 0) {
    const LoadSnapshot load = engine.load();
    fail(pin, "its " + std::to_string(num_tokens / block_size) + " blocks are over what --pin-quota leaves: " +
                  std::to_string(load.blocks_pinned) + " of " + std::to_string(load.blocks_total) + " are pinned");
  }
  log::info(pin.where + ", id " + std::to_string(ended->id) + ": " + std::to_string(num_pinned) + " of " +
            std::to_string(num_tokens) + " tokens pinned");
}

}  // namespace

Result<std::vector<TokenId>> prefix_ids(const Generation& generation, const PinnedPrefix& pin) {
  if (!pin.text.empty()) {
    v1::GenerateRequest request;
    request.set_text(pin.text);
    request.set_parse_special(true);
    return generation.prompt_ids(request);
  }
  auto ids = generation.prompt_ids(chat_with(pin.system, "0"));
  if (!ids) return ids;
  const auto other = generation.prompt_ids(chat_with(pin.system, "a"));
  if (!other) return other.error();
  const auto end = std::mismatch(ids->begin(), ids->end(), other->begin(), other->end()).first;
  ids->erase(end, ids->end());
  if (ids->empty()) return Error{ErrorCode::kInvalidArgument, "chats with this system message share no token"};
  return ids;
}

void pin_prefixes(Engine& engine, const Generation& generation, std::int32_t block_size,
                  const std::vector<PinnedPrefix>& pins) {
  for (const PinnedPrefix& pin : pins) pin_prefix(engine, generation, block_size, pin);
}

}  // namespace folio
