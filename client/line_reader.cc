#include "client/line_reader.h"

#include <histedit.h>
#include <langinfo.h>
#include <termios.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "client/history_file.h"

namespace folio::client {
namespace {

constexpr const char* kPrompt = "> ";

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
    // While a line is typed Ctrl-C is a key like others, else it is the signal that stops an answer.
    el_set(editor_, EL_SETTY, "-d", "intr=", nullptr);
    el_set(editor_, EL_ADDFN, "folio-cancel", "forget this line", &EditingReader::cancel);
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
  void restore_terminal() override { tcsetattr(STDIN_FILENO, TCSANOW, &found_); }

 private:
  static char* prompt(EditLine* /*editor*/) {
    static std::string text = kPrompt;
    return text.data();
  }
  static unsigned char cancel(EditLine* editor, int /*key*/) {
    EditingReader* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    self->cancelled_ = true;
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
  bool cancelled_ = false;
  bool told_ = false;
};

}  // namespace

std::unique_ptr<LineReader> make_line_reader(const std::string& history_path) {
  if (isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0) return std::make_unique<EditingReader>(history_path);
  return std::make_unique<PlainReader>();
}

}  // namespace folio::client
