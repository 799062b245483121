#include "server/generation.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "base/log.h"
#include "engine/text/detokenizer.h"
#include "server/answer_size.h"

namespace folio {
namespace {

// Seeds that we choose stay exact in a JSON number.
constexpr std::uint64_t kSeedMask = (1ULL << 53U) - 1;
// Of a text that is tokenised for itself, where a prompt's limit is not above it: a fraction of a second of the one
// front worker, for which every new prompt waits.
constexpr std::size_t kMaxTokenizeBytes = 1U << 20U;

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

template <class Request>
ChatInput chat_input(const Request& request) {
  ChatInput input;
  for (const v1::ChatMessage& message : request.messages()) {
    input.messages.push_back(
        {message.role(), message.content(), message.name(), message.tool_calls(), message.tool_call_id()});
  }
  input.tools_json = request.tools();
  input.template_args_json = request.template_args();
  input.add_generation_prompt = !request.has_add_generation_prompt() || request.add_generation_prompt();
  return input;
}

template <class Request>
Result<ChatTemplate::Rendered> render_chat(const ChatTemplate& chat_template, const Request& request,
                                           std::size_t max_bytes) {
  if (!chat_template.available()) {
    return Error{ErrorCode::kFailedPrecondition, "chat is not available: " + chat_template.error()};
  }
  if (request.messages().empty()) return invalid("messages: empty");
  return chat_template.render(chat_input(request), max_bytes);
}

void log_accepted(RequestId id, const std::string& label) {
  log::debug("request " + std::to_string(id) + (label.empty() ? std::string() : ", label " + quoted(label)));
}

void encode_text(const Tokenizer& tokenizer, std::string_view text, bool parse_special, bool add_special,
                 std::vector<TokenId>& out) {
  if (add_special && tokenizer.bos() >= 0) out.push_back(tokenizer.bos());
  tokenizer.encode(text, parse_special, out);
}

std::size_t longest_piece(const Tokenizer& tokenizer) {
  std::size_t longest = 0;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) longest = std::max(longest, tokenizer.piece(id).size());
  return longest;
}

std::optional<Error> check_text_size(std::string_view field, std::size_t num_bytes, std::size_t limit) {
  if (num_bytes <= limit) return std::nullopt;
  return invalid(std::string(field) + ": " + std::to_string(num_bytes) + " bytes of text are over the limit of " +
                 std::to_string(limit));
}

// What decode() makes a text of; without `whole` its end alone, at least three bytes of it where there are so many.
std::string prompt_bytes(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool skip_special, bool whole) {
  const auto is_text = [&](TokenId id) { return !skip_special || !is_special(tokenizer.kind(id)); };
  std::size_t first = whole ? 0 : ids.size();
  for (std::size_t num_bytes = 0; first > 0 && num_bytes < 3;) {
    const TokenId id = ids[--first];
    if (is_text(id)) num_bytes += tokenizer.piece(id).size();
  }
  std::string bytes;
  for (const TokenId id : ids.subspan(first)) {
    if (is_text(id)) bytes.append(tokenizer.piece(id));
  }
  return bytes;
}

}  // namespace

Generation::Generation(Engine& engine, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                       const Clock& clock, GenerationOptions options)
    : engine_(engine),
      tokenizer_(tokenizer),
      chat_template_(chat_template),
      clock_(clock),
      options_(std::move(options)),
      limits_{options_.model_name, tokenizer.vocab_size(), options_.max_num_seqs},
      max_piece_bytes_(longest_piece(tokenizer)),
      max_text_bytes_(static_cast<std::size_t>(engine.max_context()) * max_piece_bytes_),
      worker_(options_.max_waiting_inputs, options_.max_waiting_input_bytes) {}

void Generation::start(const std::shared_ptr<GenerationCall>& call, std::size_t bytes) {
  worker_.submit(call, bytes);
}

std::int64_t Generation::num_live_calls() const {
  const std::lock_guard lock(calls_mutex_);
  return num_live_calls_;
}

bool Generation::wait_calls_done(TimePoint deadline) const {
  std::unique_lock lock(calls_mutex_);
  return calls_done_.wait_until(lock, deadline, [this] { return num_live_calls_ == 0; });
}

void Generation::count_call(int change) {
  const std::lock_guard lock(calls_mutex_);
  num_live_calls_ += change;
  if (num_live_calls_ == 0) calls_done_.notify_all();
}

std::uint64_t Generation::random_seed() {
  const std::uint64_t high = entropy_();
  return ((high << 32U) | entropy_()) & kSeedMask;
}

Result<std::vector<TokenId>> Generation::prompt_ids(const v1::GenerateRequest& request) const {
  std::vector<TokenId> ids;
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      if (auto error = check_text_size("prompt", request.text().size(), max_text_bytes_)) {
        error->message += ": the context of " + std::to_string(engine_.max_context()) + " tokens, of at most " +
                          std::to_string(max_piece_bytes_) + " bytes each";
        error->over_context = true;
        return *error;
      }
      encode_text(tokenizer_, request.text(), request.parse_special(),
                  request.has_add_special() ? request.add_special() : tokenizer_.add_bos(), ids);
      if (ids.empty()) return invalid("prompt: the text gives no token");
      break;
    case v1::GenerateRequest::kTokens:
      ids.assign(request.tokens().ids().begin(), request.tokens().ids().end());
      if (auto error = check_token_ids("prompt.tokens", ids, tokenizer_.vocab_size())) return *error;
      if (ids.empty()) return invalid("prompt: no token ids");
      break;
    case v1::GenerateRequest::PROMPT_NOT_SET:
      return invalid("prompt: not set, give text or tokens");
  }
  return ids;
}

Result<std::vector<TokenId>> Generation::prompt_ids(const v1::ChatRequest& request) const {
  auto rendered = render_chat(chat_template_, request, max_text_bytes_);
  if (!rendered) return rendered.error();
  if (rendered->tokens.empty()) return invalid("messages: the rendered prompt has no token");
  return std::move(rendered->tokens);
}

std::size_t Generation::max_tokenize_bytes() const {
  return std::max(kMaxTokenizeBytes, max_text_bytes_);
}

Result<v1::TokenizeResponse> Generation::tokenize(const v1::TokenizeRequest& request) const {
  if (auto error = check_model(request.model(), limits_)) return *error;
  if (auto error = check_text_size("text", request.text().size(), max_tokenize_bytes())) return *error;
  std::vector<TokenId> ids;
  encode_text(tokenizer_, request.text(), request.parse_special(), request.add_special(), ids);
  // At least: a byte of the id and two around the piece.
  if (auto error = check_answer_size(request.text().size() + 3 * ids.size(), kAskForParts)) return *error;
  v1::TokenizeResponse response;
  response.mutable_tokens()->Add(ids.begin(), ids.end());
  for (const TokenId id : ids) response.add_pieces(std::string(tokenizer_.piece(id)));
  return response;
}

Result<v1::DetokenizeResponse> Generation::detokenize(const v1::DetokenizeRequest& request) const {
  if (auto error = check_model(request.model(), limits_)) return *error;
  const std::vector<TokenId> ids(request.tokens().begin(), request.tokens().end());
  if (auto error = check_token_ids("tokens", ids, tokenizer_.vocab_size())) return *error;
  const bool skip_special = !request.has_skip_special() || request.skip_special();
  const auto is_text = [&](TokenId id) { return !skip_special || !is_special(tokenizer_.kind(id)); };
  std::size_t num_bytes = 0;
  for (const TokenId id : ids) num_bytes += is_text(id) ? tokenizer_.piece(id).size() : 0;
  // They are in the answer twice.
  if (auto error = check_answer_size(2 * num_bytes, kAskForParts)) return *error;
  v1::DetokenizeResponse response;
  for (const TokenId id : ids) {
    if (is_text(id)) response.mutable_bytes()->append(tokenizer_.piece(id));
  }
  response.set_text(sanitize_utf8(response.bytes()));
  return response;
}

Result<v1::ApplyChatTemplateResponse> Generation::apply_chat_template(
    const v1::ApplyChatTemplateRequest& request) const {
  if (auto error = check_model(request.model(), limits_)) return *error;
  auto rendered = render_chat(chat_template_, request, max_tokenize_bytes());
  if (!rendered) return rendered.error();
  v1::ApplyChatTemplateResponse response;
  response.set_text(sanitize_utf8(rendered->text));
  response.mutable_tokens()->Add(rendered->tokens.begin(), rendered->tokens.end());
  return response;
}

v1::ListModelsResponse Generation::list_models() const {
  v1::ListModelsResponse response;
  v1::ListModelsResponse::Model& model = *response.add_models();
  model.set_name(options_.model_name);
  model.set_architecture(options_.architecture);
  model.set_max_context(engine_.max_context());
  model.set_has_chat_template(chat_template_.available());
  model.set_vocab_size(tokenizer_.vocab_size());
  return response;
}

GenerationCall::GenerationCall(Generation& generation, TimePoint transport_deadline, Caller caller)
    : generation_(generation),
      arrival_(generation.clock_.now()),
      transport_deadline_(transport_deadline),
      caller_(std::move(caller)) {
  generation_.count_call(1);
}

GenerationCall::~GenerationCall() {
  generation_.count_call(-1);
}

void GenerationCall::cancel() {
  cancelled_.store(true);
  // Either this sees the id, or submit's thread sees cancelled_ after it stored the id.
  if (const RequestId id = id_.load(); id != 0) generation_.engine_.cancel(id);
}

void GenerationCall::wake() {
  generation_.dispatcher_.note(shared_from_this());
}

void GenerationCall::refuse(Error error) {
  generation_.count_refusal(error.code);
  error_ = std::move(error);
  stream_.reset();
  prepared_.store(true);
  wake();
}

// Ends the call in any case: prepared, or refused. Input must not be able to end the worker's thread.
void GenerationCall::run() {
  try {
    auto input = parse();
    if (!input) return refuse(input.error());
    const auto id = std::visit([this](const auto& request) { return submit(request); }, *input);
    if (!id) return refuse(id.error());
    log_accepted(*id, std::visit([](const auto& request) { return request.request_id(); }, *input));
    answer_->id = *id;
    id_.store(*id);
    prepared_.store(true);
    if (cancelled_.load()) generation_.engine_.cancel(*id);
    wake();
  } catch (const std::exception& failure) {
    refuse({ErrorCode::kInternal, std::string("the request could not be prepared: ") + failure.what()});
  }
}

template <class Request>
Result<RequestId> GenerationCall::submit(const Request& request) {
  auto options = check_options(request, generation_.limits_);
  if (!options) return options.error();
  if (auto error = check_caller(caller_, options->tenant, options->priority)) return *error;
  const Error too_late{ErrorCode::kDeadlineExceeded, "the deadline passed before the first token"};
  GenerationRequest out;
  if (options->time_limit_ms > 0) out.deadline = arrival_ + std::chrono::milliseconds(options->time_limit_ms);
  out.arrival = arrival_;
  out.transport_deadline = transport_deadline_;
  const TimePoint last_moment = std::min(out.deadline, out.transport_deadline);
  if (generation_.clock_.now() >= last_moment) return too_late;
  auto ids = generation_.prompt_ids(request);
  if (!ids) return ids.error();
  if (cancelled_.load()) return Error{ErrorCode::kCancelled, "cancelled by the caller"};
  if (generation_.clock_.now() >= last_moment) return too_late;

  out.prompt = std::move(*ids);
  out.sampling = std::move(options->sampling);
  if (!options->has_seed) out.sampling.seed = generation_.random_seed();
  out.stopping = std::move(options->stopping);
  out.n = options->n;
  out.priority = options->priority;
  out.tenant = tenant_of(caller_, options->tenant);
  out.cache = std::move(options->cache);
  out.cache.salt = cache_domain(caller_, out.cache.salt);
  out.skip_special = options->skip_special;
  answer_ =
      ChunkRenderer::Answer{.id = 0,
                            .seed = out.sampling.seed,
                            .n = out.n,
                            .logprobs = out.sampling.num_logprobs >= 0,
                            .stop = out.stopping.stop,
                            .prompt = prompt_bytes(generation_.tokenizer_, out.prompt, out.skip_special, options->echo),
                            .echo = options->echo};
  stream_ = std::make_shared<TokenStream>([weak = weak_from_this()] {
    if (const auto call = weak.lock()) call->wake();
  });
  return generation_.engine_.submit(std::move(out), stream_);
}

GenerationCall::Next GenerationCall::next(v1::GenerateChunk& chunk) {
  if (!prepared_.load()) return Next::kNothing;  // wake() follows when it is
  if (!stream_) return Next::kEnd;               // refused, or ended before
  if (!renderer_) renderer_.emplace(generation_.tokenizer_, std::move(*answer_));
  while (true) {
    if (renderer_->next(chunk)) return Next::kChunk;
    if (renderer_->ended()) return end();
    if (!take()) return Next::kNothing;
  }
}

GenerationCall::Next GenerationCall::peek() {
  if (renderer_->ended()) return end();
  // Although the renderer may have something left: a stream that was not seen empty does not call again.
  take();
  return renderer_->has_more() ? Next::kChunk : Next::kNothing;
}

GenerationCall::Next GenerationCall::end() {
  error_ = renderer_->error();
  stream_.reset();
  return Next::kEnd;
}

// What the engine made since the last time, to the renderer, until the stream is seen empty. False: it was.
bool GenerationCall::take() {
  bool any = false;
  for (TokenStream::Taken taken = stream_->take(); !taken.empty(); taken = stream_->take()) {
    renderer_->add(std::move(taken));
    any = true;
  }
  return any;
}

}  // namespace folio
