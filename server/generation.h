// What every front shares: a request's message in, checked, tokenised and handed to the engine; chunks out. A front
// derives a call of its own from GenerationCall and moves bytes, nothing more. No transport in here.
//
// Threads of one call: the front's thread starts it; the front worker parses, checks, tokenises and submits; the engine
// thread notes news; the dispatcher thread takes and renders; cancel comes from anywhere.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"
#include "engine/engine.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "engine/token_stream.h"
#include "folio/v1/generation.pb.h"
#include "server/caller.h"
#include "server/chunk_renderer.h"
#include "server/dispatcher.h"
#include "server/front_worker.h"
#include "server/refusal_counts.h"
#include "server/validation.h"

namespace folio {

class GenerationCall;
using GenerationInput = std::variant<v1::GenerateRequest, v1::ChatRequest>;

struct GenerationOptions {
  std::string model_name;
  std::string architecture;
  std::int32_t max_num_seqs = 1;
  std::size_t max_waiting_inputs = 1024;             // requests not yet tokenised
  std::size_t max_waiting_input_bytes = 64U << 20U;  // and their bytes
};

class Generation {
 public:
  // All outlive this object.
  Generation(Engine& engine, const Tokenizer& tokenizer, const ChatTemplate& chat_template, const Clock& clock,
             GenerationOptions options);

  // Any thread, at once. `bytes`: size of the call's input. What follows comes through the call.
  void start(const std::shared_ptr<GenerationCall>& call, std::size_t bytes);
  // Any thread: a front refused a generation before it made a call of it. (Calls count themselves.)
  void count_refusal(ErrorCode code) { refusals_.add(code); }
  const RefusalCounts& refusals() const { return refusals_; }
  // Any thread, at once: work for the front worker that is no generation.
  void run(const std::shared_ptr<FrontJob>& job, std::size_t bytes) { worker_.submit(job, bytes); }

  // Front worker, or before it has work.
  Result<v1::TokenizeResponse> tokenize(const v1::TokenizeRequest& request) const;
  Result<v1::DetokenizeResponse> detokenize(const v1::DetokenizeRequest& request) const;
  Result<v1::ApplyChatTemplateResponse> apply_chat_template(const v1::ApplyChatTemplateRequest& request) const;

  // The prompt's ids, at least one. A text (a rendered chat too) is refused before it is tokenised when it has more
  // bytes than the context has room for in tokens of the longest piece: the one worker's time belongs to all. (By size
  // alone: such a text could still fit if most of its bytes have no token, or if it is spelled in U+2581 where pieces
  // have spaces.)
  Result<std::vector<TokenId>> prompt_ids(const v1::GenerateRequest& request) const;
  Result<std::vector<TokenId>> prompt_ids(const v1::ChatRequest& request) const;

  // Any thread, at once.
  v1::ListModelsResponse list_models() const;
  std::size_t num_waiting_inputs() const { return worker_.num_waiting(); }
  std::int64_t num_live_calls() const;
  // Until no call is left or the deadline passed: true when none is left.
  bool wait_calls_done(TimePoint deadline) const;

 private:
  friend class GenerationCall;

  std::size_t max_tokenize_bytes() const;
  std::uint64_t random_seed();  // front worker only

  Engine& engine_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  const Clock& clock_;
  const GenerationOptions options_;
  const RequestLimits limits_;
  const std::size_t max_piece_bytes_;
  const std::size_t max_text_bytes_;  // of a prompt: more cannot fit the context
  std::random_device entropy_;
  void count_call(int change);

  RefusalCounts refusals_;
  mutable std::mutex calls_mutex_;  // for num_live_calls_
  mutable std::condition_variable calls_done_;
  std::int64_t num_live_calls_ = 0;  // GenerationCall objects
  Dispatcher dispatcher_;
  FrontWorker worker_;  // last: its thread ends first and may still note the dispatcher
};

// One answer on its way. Owned by shared_ptr: front, front worker and dispatcher each hold it while they need it.
class GenerationCall : public FrontJob, public Receiver, public std::enable_shared_from_this<GenerationCall> {
 public:
  // `transport_deadline`: when the front can send nothing any more; kNoDeadline if it has none.
  GenerationCall(Generation& generation, TimePoint transport_deadline, Caller caller = {});
  ~GenerationCall() override;

  // Any thread, any number of times: nobody waits for the answer any more. The call still ends by itself, in an error.
  void cancel();

 protected:
  enum class Next { kNothing, kChunk, kEnd };

  // Front worker, once: the request's message.
  virtual Result<GenerationInput> parse() = 0;
  // deliver(): dispatcher thread, whenever there may be news, and once more after cancel or wake. It calls next() when
  // it can send, until kNothing or kEnd; a front that stops before calls wake() when it can go on.
  Next next(v1::GenerateChunk& chunk);
  // Dispatcher thread, after next() gave kChunk: what it would give now. After kNothing the front may stop: deliver()
  // is called when there is more. After kEnd it is over.
  Next peek();
  // Dispatcher thread, after kEnd: why there is no normal end.
  const std::optional<Error>& error() const { return error_; }
  // Any thread: deliver() will be called (a write is done).
  void wake();

 private:
  bool abandoned() const final { return cancelled_.load(); }
  void run() final;
  void drop(const Error& error) final { refuse(error); }
  void refuse(Error error);
  template <class Request>
  Result<RequestId> submit(const Request& request);
  bool take();
  Next end();

  Generation& generation_;
  const TimePoint arrival_;
  const TimePoint transport_deadline_;
  const Caller caller_;
  std::atomic<bool> cancelled_{false};
  std::atomic<RequestId> id_{0};
  // Written by the front worker (or the refusing thread) before prepared_, by the dispatcher thread after it.
  std::optional<Error> error_;
  std::shared_ptr<TokenStream> stream_;
  std::optional<ChunkRenderer::Answer> answer_;
  std::atomic<bool> prepared_{false};
  std::optional<ChunkRenderer> renderer_;  // dispatcher thread
};

}  // namespace folio
