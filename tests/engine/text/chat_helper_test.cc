// The helper process behind the chat template: its limits, its death, its neighbours.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/text/chat_template.h"
#include "tests/engine/text/fake_tokenizer.h"

namespace folio {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

const FakeTokenizer& tokenizer() {
  static const FakeTokenizer kTokenizer({"<|im_end|>"});
  return kTokenizer;
}

ChatInput one(std::string content) {
  ChatInput input;
  input.messages.push_back({"user", std::move(content), "", "", ""});
  return input;
}

// What /proc/PID/stat says behind the name: the state, the parent. Empty if there is no such process.
std::string stat_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text;
  if (!std::getline(file, text)) return {};
  return text.substr(text.rfind(") ") + 2);
}

char state_of(pid_t pid) {
  const std::string text = stat_of(std::to_string(pid));
  return text.empty() ? '\0' : text[0];
}

// The children of this process, zombies too.
std::vector<pid_t> children() {
  std::vector<pid_t> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (std::isdigit(static_cast<unsigned char>(name[0])) == 0) continue;
    const std::string text = stat_of(name);
    if (!text.empty() && std::stoi(text.substr(2)) == getpid()) out.push_back(std::stoi(name));
  }
  return out;
}

// A template that shows content, unless the content asks for a fault.
constexpr const char* kFaults =
    "{% set c = messages[0].content %}"
    "{% if c == 'loop' %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    "{% elif c == 'range' %}{% for i in range(100000000) %}x{% endfor %}"
    "{% elif c == 'zero' %}{{ 1/0 }}"
    "{% elif c == 'memory' %}{{ 'x' * 10**10 }}"
    "{% elif c == 'power' %}{{ 9**(9**9) }}"
    "{% elif c == 'output' %}{{ 'x' * 9000000 }}"
    "{% elif c == 'chunks' %}{% for i in range(20) %}{{ 'x' * 2000000 }}{% endfor %}"
    "{% elif c == 'most' %}{{ 'x' * 8388608 }}"
    "{% elif c == 'recursion' %}{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"
    "{% else %}{{ c }}{% endif %}";

TEST(ChatHelper, ARenderPastALimitFailsAlone) {
  const ChatTemplate chat(kFaults, tokenizer());
  ASSERT_TRUE(chat.available()) << chat.error();
  const auto error_of = [&](const char* content) {
    const auto start = steady_clock::now();
    const auto rendered = chat.render(one(content));
    EXPECT_LT(steady_clock::now() - start, milliseconds(2500)) << content;
    EXPECT_FALSE(rendered.ok()) << content;
    EXPECT_EQ(rendered.error().code, ErrorCode::kInvalidArgument) << content;
    const auto next = chat.render(one("next"));
    EXPECT_TRUE(next.ok()) << next.error().message;
    EXPECT_EQ(next->text, "next");
    return rendered.ok() ? "" : rendered.error().message;
  };
  EXPECT_EQ(error_of("loop"), "messages: the chat template ran for more than 1000 ms");
  EXPECT_EQ(error_of("power"), "messages: the chat template ran for more than 1000 ms");
  EXPECT_NE(error_of("range").find("Range too big"), std::string::npos);
  EXPECT_NE(error_of("zero").find("ZeroDivisionError"), std::string::npos);
  EXPECT_NE(error_of("memory").find("needs more memory than a render may use"), std::string::npos);
  EXPECT_EQ(error_of("output"), "messages: the rendered prompt is longer than 8388608 bytes");
  EXPECT_NE(error_of("chunks").find("its output is too long"), std::string::npos);
  EXPECT_NE(error_of("recursion").find("RecursionError"), std::string::npos);
  EXPECT_EQ(chat.render(one("12345"), 5)->text, "12345");
  EXPECT_EQ(chat.render(one("123456"), 5).error().message, "messages: the rendered prompt is longer than 5 bytes");
  const auto most = chat.render(one("most"));
  ASSERT_TRUE(most.ok()) << most.error().message;
  EXPECT_EQ(most->tokens.size(), 8388608U);
  EXPECT_EQ(children().size(), 1U);  // the killed ones are gone
}

TEST(ChatHelper, AHelperThatSomeoneKillsIsStartedAgain) {
  const ChatTemplate chat(kFaults, tokenizer());
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(children().size(), 1U);
    ASSERT_EQ(kill(children()[0], SIGKILL), 0);
    const auto rendered = chat.render(one("a"));
    ASSERT_TRUE(rendered.ok()) << rendered.error().message;
    EXPECT_EQ(rendered->text, "a");
  }
  // Stopped, it is late: that render fails, the next one works.
  ASSERT_EQ(kill(children()[0], SIGSTOP), 0);
  EXPECT_FALSE(chat.render(one("a")).ok());
  EXPECT_TRUE(chat.render(one("a")).ok());
}

TEST(ChatHelper, ARequestOfManyMegabytesPasses) {
  const ChatTemplate chat(kFaults, tokenizer());
  const std::string content(4U << 20, 'y');
  const auto rendered = chat.render(one(content));
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  EXPECT_EQ(rendered->text, content);
}

TEST(ChatHelper, ThreadsRenderOneAfterTheOther) {
  const ChatTemplate chat(kFaults, tokenizer());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const bool slow = t == 0 && i == 20;  // its own time runs out, nobody else's
        const std::string content = slow ? "loop" : std::to_string(t * 1000 + i);
        const auto rendered = chat.render(one(content));
        if (rendered.ok() == slow || (rendered.ok() && rendered->text != content)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ChatHelper, ItHasNothingOfTheServer) {
  const int leak = dup(0);  // a descriptor without close-on-exec
  {
    const ChatTemplate chat(kFaults, tokenizer());
    const auto all = children();
    ASSERT_EQ(all.size(), 1U);
    const std::string folder = "/proc/" + std::to_string(all[0]);
    std::vector<std::string> descriptors;
    for (const auto& entry : std::filesystem::directory_iterator(folder + "/fd")) {
      descriptors.push_back(entry.path().filename());
    }
    EXPECT_EQ(descriptors.size(), 3U);
    EXPECT_EQ(std::filesystem::read_symlink(folder + "/fd/2"), "/dev/null");
    EXPECT_EQ(getpgid(all[0]), all[0]);  // a Ctrl-C in the terminal is not for it
    std::ifstream file(folder + "/environ");
    const std::string environment(std::istreambuf_iterator<char>(file), {});
    EXPECT_EQ(environment.find("PATH="), std::string::npos);
  }
  close(leak);
  EXPECT_TRUE(children().empty());
}

// A server that is killed leaves no helper, whether that waits for a request or is in the middle of an endless one.
TEST(ChatHelper, ItEndsWithTheServer) {
  for (const char* content : {"a", "loop"}) {
    std::array<int, 2> pipe_ends{};
    ASSERT_EQ(pipe(pipe_ends.data()), 0);
    const pid_t server = fork();
    if (server == 0) {
      const ChatTemplate chat(kFaults, tokenizer());
      const pid_t helper = children().at(0);
      if (write(pipe_ends[1], &helper, sizeof helper) != sizeof helper) _exit(1);
      const auto rendered = chat.render(one(content));
      pause();
      _exit(rendered.ok() ? 0 : 1);
    }
    pid_t helper = 0;
    ASSERT_EQ(read(pipe_ends[0], &helper, sizeof helper), static_cast<ssize_t>(sizeof helper));
    std::this_thread::sleep_for(milliseconds(100));  // the render begins
    kill(server, SIGKILL);
    waitpid(server, nullptr, 0);
    const auto start = steady_clock::now();
    while (state_of(helper) != 'Z' && state_of(helper) != 0) {
      ASSERT_LT(steady_clock::now() - start, milliseconds(4000)) << content;
      std::this_thread::sleep_for(milliseconds(10));
    }
    close(pipe_ends[0]);
    close(pipe_ends[1]);
  }
}

TEST(ChatHelper, WithoutPythonChatIsRefusedAndNothingElse) {
  const ChatTemplate missing("a", tokenizer(), {.python = "/no/such/python3", .now = {}});
  EXPECT_FALSE(missing.available());
  EXPECT_EQ(missing.error(), "chat template: /no/such/python3: No such file or directory");
  EXPECT_EQ(missing.render(one("a")).error().code, ErrorCode::kFailedPrecondition);
  const ChatTemplate other("a", tokenizer(), {.python = "/bin/true", .now = {}});
  EXPECT_EQ(other.error(), "chat template: /bin/true ended while starting");
  EXPECT_TRUE(children().empty());
}

TEST(ChatHelper, AMemoryLimitTooSmallForPythonIsAnErrorAtStart) {
  const ChatTemplate chat("a", tokenizer(), {.max_memory_bytes = 1U << 20, .python = "/usr/bin/python3", .now = {}});
  EXPECT_FALSE(chat.available());
}

}  // namespace
}  // namespace folio
