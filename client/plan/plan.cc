#include "client/plan/plan.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>

#include "client/failure.h"
#include "client/flag_checks.h"
#include "client/plan/report.h"
#include "client/plan/sizes.h"
#include "client/text.h"
#include "folio/v1/control.grpc.pb.h"

namespace folio::client {
namespace {

constexpr auto kAnswerTime = std::chrono::seconds(10);

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

void require_flag(bool condition, const std::string& what) {
  if (!condition) throw UsageError(what);
}

template <class Request, class Answer>
Answer ask(const Connection& connection, v1::Control::Stub& stub,
           grpc::Status (v1::Control::Stub::*call)(grpc::ClientContext*, const Request&, Answer*)) {
  grpc::ClientContext context;
  connection.authorize(context);
  context.set_deadline(std::chrono::system_clock::now() + kAnswerTime);
  Answer answer;
  const grpc::Status status = (stub.*call)(&context, Request(), &answer);
  if (!status.ok()) {
    const Failure failure = explain(status, connection, Listener::kControl);
    throw CommandError("--measure: " + failure.text, failure.exit_code);
  }
  return answer;
}

LiveServer ask_server(Connection connection, const std::string& address) {
  connection.address = address;
  connection.address_flag = "--measure";
  const auto stub = v1::Control::NewStub(make_channel(connection));
  LiveServer server{address,
                    ask<v1::GetServerInfoRequest, v1::ServerInfo>(connection, *stub, &v1::Control::Stub::GetServerInfo),
                    ask<v1::GetLoadRequest, v1::Load>(connection, *stub, &v1::Control::Stub::GetLoad)};
  const v1::ServerInfo& info = server.info;
  require(info.num_blocks() > 0 && server.block_bytes() > 0 && info.block_size() > 0 &&
              info.block_size() <= KvShape::kMost && info.max_context() > 0 && server.load.blocks_held() >= 0,
          "--measure " + address + ": its answer has no sizes of a KV cache; is it a folio-server?");
  return server;
}

Subject subject_of(const PlanOptions& options) {
  Subject subject;
  const KvShape& shape = options.shape;
  if (!options.model.empty()) {
    subject = read_subject(options.model);
  } else if (shape.layers > 0 || shape.heads > 0 || shape.head_dim > 0 || shape.kv_heads > 0) {
    for (const auto& [flag, value] :
         {std::pair{"--layers", shape.layers}, {"--heads", shape.heads}, {"--head-dim", shape.head_dim}}) {
      require_flag(value > 0, std::string(flag) + ": not given; --layers, --heads and --head-dim belong together");
    }
    subject.shape = shape;
    if (shape.kv_heads == 0) subject.shape->kv_heads = shape.heads;
    require_flag(
        shape.heads % subject.shape->kv_heads == 0,
        "--kv-heads: " + std::to_string(shape.kv_heads) + " does not divide --heads " + std::to_string(shape.heads));
  } else {
    require_flag(
        options.measure.has_value(),
        "nothing to plan for: give a model file, or --layers, --heads and --head-dim, or --measure with a server");
  }
  if (!options.weights.empty()) subject.weight_bytes = parse_size(options.weights, "--weights");
  return subject;
}

// What was not given is the server's, or the usual.
void fill_in(const PlanOptions& options, Plan& plan) {
  const LiveServer* server = plan.server ? &*plan.server : nullptr;
  plan.dtype = !options.dtype.empty() ? options.dtype : server ? server->info.kv_dtype() : "f16";
  const auto type = kv_type_named(plan.dtype);
  const std::string whose = options.dtype.empty() ? "the server's --kv-dtype " : "--dtype ";
  require_flag(type.has_value(), whose + shown_words(plan.dtype, 40) + ": unknown; expected f32, f16, bf16 or int8");
  plan.type = *type;
  plan.block_size = options.block_size > 0 ? options.block_size : server ? server->info.block_size() : 16;
  plan.crowd = options.crowd;
  plan.crowd.context = options.context;
  if (options.context == 0) {
    plan.crowd.context = plan.subject.max_context;
    if (server)
      plan.crowd.context = std::min<std::int64_t>(server->info.max_context(),
                                                  plan.crowd.context > 0 ? plan.crowd.context : Crowd::kMost);
  }
  require_flag(plan.crowd.context > 0, "--context: not given, and no model says it");
  require_flag(plan.subject.max_context == 0 || plan.crowd.context <= plan.subject.max_context,
               "--context: " + std::to_string(plan.crowd.context) + " tokens are over the model's " +
                   std::to_string(plan.subject.max_context));
  require_flag(plan.crowd.prefix_tokens < plan.crowd.context,
               "--prefix-tokens: " + std::to_string(plan.crowd.prefix_tokens) + " leave nothing of a context of " +
                   std::to_string(plan.crowd.context) + " tokens");
  plan.prompt_tokens = options.prompt_tokens > 0 ? options.prompt_tokens : plan.crowd.context;
  require_flag(plan.prompt_tokens <= plan.crowd.context, "--prompt-tokens: " + std::to_string(plan.prompt_tokens) +
                                                             " are over the context of " +
                                                             std::to_string(plan.crowd.context));
  if (!options.memory.empty()) plan.memory_bytes = parse_size(options.memory, "--memory");
}

}  // namespace

void PlanOptions::add_to(CLI::App& app) {
  const CLI::Range size(1, static_cast<int>(KvShape::kMost));
  const CLI::Range count(std::int64_t{1}, Crowd::kMost);
  auto* file = app.add_option("model", model, "GGUF file; only its head is read")->type_name("FILE");
  for (auto* flag : {app.add_option("--layers", shape.layers, "of the model, where there is no file"),
                     app.add_option("--heads", shape.heads, "of queries"),
                     app.add_option("--kv-heads", shape.kv_heads, "of K and V (default: as many as of queries)"),
                     app.add_option("--head-dim", shape.head_dim, "values of a head")}) {
    flag->check(size)->excludes(file);
  }
  app.add_option("--weights", weights, "memory of the weights, as 16GiB (default: as large as in the file)");
  app.add_option("--dtype", dtype, "of K and V: f32, f16, bf16, int8 (default: the server's, or f16)")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8"}));
  app.add_option("--block-size", block_size, "tokens of a block (default: the server's, or 16)")
      ->check(CLI::IsMember({16, 32, 64, 128, 256}));
  app.add_option("--context", context, "tokens of a user, prompt and answer (default: the most that the model takes)")
      ->check(count);
  app.add_option("--users", crowd.users, "users at once")->check(count)->capture_default_str();
  app.add_option("--prefix-tokens", crowd.prefix_tokens, "tokens that users begin with in common; kept once")
      ->check(CLI::Range(std::int64_t{0}, Crowd::kMost));
  app.add_option("--prefix-share", crowd.prefix_share, "the part of the users who do")
      ->check(number_in(0, 1))
      ->capture_default_str();
  app.add_option("--memory", memory,
                 "for weights and K and V together, as 64GiB (a number alone: bytes): how many users fit");
  auto* server =
      app.add_option("--measure", measure, "control address of a server: compare it, and forecast its times");
  app.add_option("--prompt-tokens", prompt_tokens, "prompt whose first token is forecast (default: the whole context)")
      ->check(count)
      ->needs(server);
  connection.add_security_to(app);
  app.add_flag("--json", json, "one JSON object, sizes in bytes");
}

int run_plan(const PlanOptions& options) {
  Plan plan;
  plan.subject = subject_of(options);
  if (options.measure) plan.server = ask_server(options.connection, *options.measure);
  fill_in(options, plan);
  const PlanJson report = plan_json(plan);
  // Names come from files and servers, and may be any bytes.
  if (options.json) {
    std::printf("%s\n", report.dump(2, ' ', false, PlanJson::error_handler_t::replace).c_str());
  } else {
    print_text(plan_text(report));
  }
  return kExitOk;
}

}  // namespace folio::client
