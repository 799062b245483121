#include "client/line_reader.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdint>
#include <cstdio>
#include <cwchar>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "client/history_file.h"

namespace folio::client {
namespace {

constexpr const char* kPrompt = "> ";
constexpr wchar_t kCtrlC = 3;

class PlainReader final : public LineReader {
 public:
  TypedLine read() override {
    TypedLine line;
    if (std::getline(std::cin, line.text)) line.kind = TypedLine::Kind::kText;
    return line;
  }
  bool is_terminal() const override { return false; }
};

// libedit takes bytes for characters unless the locale says that they are UTF-8, which is all that we speak.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

class EditingReader final : public LineReader {
 public:
  explicit EditingReader(const std::string& history_path) : file_(history_path), history_(history_init()) {
    use_utf8();
    tcgetattr(STDIN_FILENO, &found_);
    editor_ = el_init("folio-client", stdin, stderr, stderr);
    if (editor_ == nullptr || history_ == nullptr) throw std::runtime_error("the terminal cannot be edited on");
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &EditingReader::prompt);
    el_set(editor_, EL_EDITOR, "emacs");
    el_source(editor_, nullptr);    // the user's own ~/.editrc
    el_set(editor_, EL_SIGNAL, 1);  // a new size of the window, and coming back from Ctrl-Z
    // Ctrl-C is a signal, which another thread takes: cancel() makes a key of it.
    el_set(editor_, EL_GETCFN, &EditingReader::next_character);
    el_set(editor_, EL_ADDFN, "folio-cancel", "forget this line", &EditingReader::cancel_line);
    el_set(editor_, EL_BIND, "^C", "folio-cancel", nullptr);
    el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    HistEvent event;
    history(history_, &event, H_SETSIZE, static_cast<int>(HistoryFile::kMaxLines));
    history(history_, &event, H_SETUNIQUE, 1);
    for (const std::string& line : file_.load()) history(history_, &event, H_ENTER, line.c_str());
    el_set(editor_, EL_HIST, history, history_);
  }
  ~EditingReader() override {
    el_end(editor_);
    history_end(history_);
    close(cancels_);
  }

  TypedLine read() override {
    cancelled_ = false;
    int count = 0;
    const char* typed = el_gets(editor_, &count);
    TypedLine line;
    if (cancelled_) {
      line.kind = TypedLine::Kind::kCancelled;
      return line;
    }
    if (typed == nullptr || count <= 0) {
      std::fprintf(stderr, "\n");
      return line;
    }
    line.kind = TypedLine::Kind::kText;
    line.text.assign(typed, static_cast<std::size_t>(count));
    while (line.text.ends_with('\n') || line.text.ends_with('\r')) line.text.pop_back();
    if (!line.text.empty()) remember(line.text);
    return line;
  }
  bool is_terminal() const override { return true; }
  void cancel() override {
    constexpr std::uint64_t kOne = 1;
    static_cast<void>(::write(cancels_, &kOne, sizeof kOne) == sizeof kOne);  // full: there are enough of them
  }
  void restore_terminal() override { tcsetattr(STDIN_FILENO, TCSANOW, &found_); }

 private:
  static char* prompt(EditLine* /*editor*/) {
    static std::string text = kPrompt;
    return text.data();
  }
  static EditingReader& self_of(EditLine* editor) {
    EditingReader* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *self;
  }
  // 1: a character; 0: the end; -1: an error.
  static int next_character(EditLine* editor, wchar_t* out) {
    std::mbstate_t state{};
    while (true) {
      pollfd sources[] = {{STDIN_FILENO, POLLIN, 0}, {self_of(editor).cancels_, POLLIN, 0}};
      if (poll(sources, std::size(sources), -1) < 0) {
        if (errno != EINTR) return -1;
        el_set(editor, EL_REFRESH);  // the window has another size, or the program came back to the front
        continue;
      }
      std::uint64_t count = 0;
      if (sources[1].revents != 0 && ::read(sources[1].fd, &count, sizeof count) > 0) {
        *out = kCtrlC;
        return 1;
      }
      char byte = 0;
      const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
      if (got <= 0) return got == 0 ? 0 : -1;
      const std::size_t length = std::mbrtowc(out, &byte, 1, &state);
      if (length == static_cast<std::size_t>(-2)) continue;          // the character goes on
      if (length == static_cast<std::size_t>(-1)) *out = L'\uFFFD';  // none of any
      return 1;
    }
  }
  static unsigned char cancel_line(EditLine* editor, int /*key*/) {
    self_of(editor).cancelled_ = true;
    el_push(editor, "\n");  // as if Enter came next: only its own command leaves libedit's picture of the screen right
    return CC_NORM;
  }
  void remember(const std::string& line) {
    HistEvent event;
    history(history_, &event, H_ENTER, line.c_str());
    if (file_.add(line) || std::exchange(told_, true)) return;
    std::fprintf(stderr, "(the history cannot be written, this conversation's lines are kept in memory alone)\n");
  }

  const HistoryFile file_;
  History* history_ = nullptr;
  EditLine* editor_ = nullptr;
  termios found_{};
  const int cancels_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  bool cancelled_ = false;
  bool told_ = false;
};

}  // namespace

std::unique_ptr<LineReader> make_line_reader(const std::string& history_path) {
  if (isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0) return std::make_unique<EditingReader>(history_path);
  return std::make_unique<PlainReader>();
}

}  // namespace folio::client
