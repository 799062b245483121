#include "client/load.h"

#include <google/protobuf/util/json_util.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/failure.h"
#include "client/load_view.h"
#include "folio/v1/control.grpc.pb.h"

namespace folio::client {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

ViewStyle style_of_terminal() {
  ViewStyle style;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) style.columns = size.ws_col;
  style.colours = !is_set("NO_COLOR");
  return style;
}

// Draws over what it drew before, so that what stood on the terminal stays above and the last screen stays when it
// ends.
class Screen {
 public:
  Screen() { put("\x1b[?25l"); }  // no cursor
  ~Screen() { put("\x1b[?25h"); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void draw(const std::vector<std::string>& lines) {
    std::string out;
    if (num_lines_ > 0) out = "\x1b[" + std::to_string(num_lines_) + "A\r";
    for (const std::string& line : lines) out += line + "\x1b[0m\x1b[K\n";  // the rest of the old line goes
    num_lines_ = lines.size();
    put(out);
  }

 private:
  static void put(const std::string& bytes) {
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    std::fflush(stdout);
  }
  std::size_t num_lines_ = 0;
};

std::string load_json(const v1::Load& load) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  // Every message of ours has a JSON form.
  static_cast<void>(google::protobuf::util::MessageToJsonString(load, &text, options));
  return text;
}

// The messages of a stream, shown one way or another. True: as many as were asked for.
bool show(grpc::ClientReader<v1::Load>& reader, const LoadOptions& options, const v1::ServerInfo& info) {
  const char* term = std::getenv("TERM");
  const bool draws = isatty(STDOUT_FILENO) != 0 && !options.json && term != nullptr && std::string_view(term) != "dumb";
  std::unique_ptr<Screen> screen;
  if (draws) screen = std::make_unique<Screen>();
  LoadView view(info, options.connection.address);
  v1::Load load;
  for (std::int64_t seen = 1; reader.Read(&load); ++seen) {
    if (draws) {
      view.add(load);
      screen->draw(view.lines(style_of_terminal()));
    } else {
      std::printf("%s\n", options.json ? load_json(load).c_str() : load_line(load).c_str());
      if (std::fflush(stdout) != 0) return true;  // nobody reads any more
    }
    if (seen == options.count) return true;
  }
  return false;
}

}  // namespace

int run_load(const LoadOptions& options, Interrupts& interrupts) {
  const auto stub = v1::Control::NewStub(make_channel(options.connection));
  v1::ServerInfo info;
  {
    grpc::ClientContext context;
    options.connection.authorize(context);
    const grpc::Status status = stub->GetServerInfo(&context, {}, &info);
    if (!status.ok()) return report(status, options.connection, Listener::kControl);
  }
  grpc::ClientContext context;
  options.connection.authorize(context);
  std::atomic<int> interrupted{0};  // by this signal
  interrupts.on_interrupt([&](int signal, int) {
    interrupted.store(signal);
    context.TryCancel();
  });
  v1::WatchLoadRequest request;
  request.set_interval_ms(options.interval_ms);
  const auto reader = stub->WatchLoad(&context, request);
  const bool whole = show(*reader, options, info);
  if (whole) context.TryCancel();
  const grpc::Status status = reader->Finish();
  interrupts.on_interrupt(nullptr);
  if (whole) return kExitOk;
  if (interrupted.load() == SIGTERM || (interrupted.load() != 0 && options.count > 0)) return 128 + interrupted.load();
  if (interrupted.load() != 0) return kExitOk;
  if (status.ok()) {
    std::fprintf(stderr, "folio-client: the server ended the stream; it is shutting down\n");
    return kExitNoServer;
  }
  return report(status, options.connection, Listener::kControl);
}

}  // namespace folio::client
