#include "client/load_view.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string_view>
#include <utility>

#include "client/text.h"

namespace folio::client {
namespace {

constexpr const char* kFull = "\u2588";
constexpr const char* kDark = "\u2593";
constexpr const char* kMedium = "\u2592";
constexpr const char* kLight = "\u2591";

constexpr const char* kGreen = "32";
constexpr const char* kYellow = "33";
constexpr const char* kBlue = "34";
constexpr const char* kMagenta = "35";
constexpr const char* kCyan = "36";
constexpr const char* kRed = "31";
constexpr const char* kDim = "2";

std::string coloured(std::string_view text, const char* colour, bool colours) {
  if (!colours || text.empty() || *colour == '\0') return std::string(text);
  return "\x1b[" + std::string(colour) + "m" + std::string(text) + "\x1b[0m";
}

std::string number(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

// 1234567 as 1,234,567
struct Phase {
  const char* name;
  double ms;
  const char* character;
  const char* colour;
};

std::vector<Phase> phases_of(const v1::Load& load) {
  const v1::StepPhases& phases = load.mean_step_phases();
  return {{"schedule", phases.schedule_ms(), kDark, kYellow},
          {"build", phases.build_ms(), kMedium, kCyan},
          {"forward", phases.forward_ms(), kFull, kGreen},
          {"sample", phases.sample_ms(), kDark, kMagenta},
          {"commit", phases.commit_ms(), kMedium, kBlue}};
}

// What a server says that no picture can show counts as nothing.
double sane(double value) {
  return value > 0 && value < 1e15 ? value : 0;
}

std::string blocks_legend(const v1::Load& load, std::int32_t block_size, bool colours) {
  std::string out = coloured(kFull, kGreen, colours) + " held " +
                    count_text(load.blocks_held() - load.blocks_pinned()) + "  " + coloured(kDark, kMagenta, colours) +
                    " pinned " + count_text(load.blocks_pinned()) + "  " + coloured(kMedium, kBlue, colours) +
                    " cached " + count_text(load.blocks_cached()) + "  " + coloured(kLight, kDim, colours) + " free " +
                    count_text(load.blocks_free()) + "  of " + count_text(load.blocks_total()) + " x " +
                    std::to_string(block_size) + " tokens";
  if (load.blocks_unaccounted() != 0) {
    out += "  " + coloured("UNACCOUNTED " + count_text(load.blocks_unaccounted()), kRed, colours);
  }
  return out;
}

std::string blocks_bar(const v1::Load& load, const ViewStyle& style, std::size_t width) {
  return bar({{static_cast<double>(load.blocks_held() - load.blocks_pinned()), kFull, kGreen},
              {static_cast<double>(load.blocks_pinned()), kDark, kMagenta},
              {static_cast<double>(load.blocks_cached()), kMedium, kBlue},
              {static_cast<double>(load.blocks_free()), kLight, kDim}},
             width, style.colours);
}

std::string phases_line(const v1::Load& load, bool colours) {
  std::string out;
  for (const Phase& phase : phases_of(load)) {
    if (!out.empty()) out += "  ";
    out += coloured(phase.character, phase.colour, colours) + " " + phase.name + " " + number(phase.ms, 2);
  }
  return out + "  ms";
}

std::string totals_line(const v1::Load& load) {
  const std::int64_t seen = load.cached_tokens() + load.prompt_tokens();
  const double hits = seen == 0 ? 0 : 100.0 * static_cast<double>(load.cached_tokens()) / static_cast<double>(seen);
  return count_text(load.num_steps()) + " steps, prompts " + count_text(load.prompt_tokens()) +
         " tokens computed and " + count_text(load.cached_tokens()) + " cached (" + number(hits, 0) + " %), output " +
         count_text(load.output_tokens()) + ", preemptions " + count_text(load.num_preemptions()) + ", pins " +
         count_text(load.num_pins());
}

}  // namespace

std::string load_line(const v1::Load& load) {
  std::string out;
  const auto add = [&out](const char* name, const std::string& value) {
    if (!out.empty()) out += ' ';
    out.append(name).append(" ").append(value);
  };
  add("running", std::to_string(load.num_running()));
  add("waiting", std::to_string(load.num_waiting() + load.num_front_waiting()));
  add("held", std::to_string(load.blocks_held()));
  add("pinned", std::to_string(load.blocks_pinned()));
  add("cached", std::to_string(load.blocks_cached()));
  add("free", std::to_string(load.blocks_free()));
  add("unaccounted", std::to_string(load.blocks_unaccounted()));
  add("prompt_tok/s", number(load.prompt_tokens_per_second(), 1));
  add("output_tok/s", number(load.output_tokens_per_second(), 1));
  add("step_ms", number(load.mean_step_ms(), 2));
  for (const Phase& phase : phases_of(load)) add((std::string(phase.name) + "_ms").c_str(), number(phase.ms, 3));
  return out;
}

std::string bar(const std::vector<BarPart>& parts, std::size_t width, bool colours) {
  std::vector<double> values;
  for (const BarPart& part : parts) values.push_back(sane(part.value));
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  if (sum <= 0) return std::string(width, ' ');
  std::vector<std::size_t> widths;
  std::size_t used = 0;
  for (const double value : values) {
    const auto share = static_cast<std::size_t>(std::lround(value / sum * static_cast<double>(width)));
    widths.push_back(value > 0 ? std::max<std::size_t>(share, 1) : 0);
    used += widths.back();
  }
  // What rounding gave too much or too little, the widest part bears.
  for (; used > width && *std::max_element(widths.begin(), widths.end()) > 0; --used) {
    --*std::max_element(widths.begin(), widths.end());
  }
  if (used < width) *std::max_element(widths.begin(), widths.end()) += width - used;
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::string run;
    for (std::size_t j = 0; j < widths[i]; ++j) run += parts[i].character;
    out += coloured(run, parts[i].colour, colours);
  }
  return out;
}

std::string sparkline(const std::deque<double>& values, std::size_t width) {
  static constexpr std::string_view kHeights[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                                  "\u2585", "\u2586", "\u2587", "\u2588"};
  const std::size_t count = std::min(width, values.size());
  const auto begin = values.end() - static_cast<std::ptrdiff_t>(count);
  const double most = count == 0 ? 0 : *std::max_element(begin, values.end());
  std::string out;
  for (auto value = begin; value != values.end(); ++value) {
    const double share = most > 0 ? *value / most : 0;
    out += kHeights[std::min<std::size_t>(7, static_cast<std::size_t>(share * 8))];
  }
  return out;
}

void LoadView::add(const v1::Load& load) {
  load_ = load;
  const auto keep = [](std::deque<double>& values, double value) {
    values.push_back(value);
    if (values.size() > kMaxHistory) values.pop_front();
  };
  keep(output_rates_, sane(load.output_tokens_per_second()));
  keep(running_, sane(load.num_running()));
}

std::vector<std::string> LoadView::lines(const ViewStyle& style) const {
  constexpr std::size_t kLabel = 10;
  const std::size_t width = style.columns > kLabel ? style.columns - kLabel : 1;
  const auto labelled = [](const char* label, const std::string& text) {
    return std::string(label) + std::string(kLabel - std::string_view(label).size(), ' ') + text;
  };
  std::vector<BarPart> phases;
  for (const Phase& phase : phases_of(load_)) phases.push_back({phase.ms, phase.character, phase.colour});
  const std::size_t half = width / 2;
  std::vector<std::string> out = {
      labelled("folio", printable(info_.model()) + " at " + address_ + ": " + printable(info_.isa()) + ", " +
                            std::to_string(info_.num_threads()) + " threads, KV " + printable(info_.kv_dtype()) +
                            ", version " + printable(info_.version())),
      "",
      labelled("requests", std::to_string(load_.num_running()) + " running  " + std::to_string(load_.num_waiting()) +
                               " waiting  " + std::to_string(load_.num_front_waiting()) + " not yet token ids"),
      labelled("", sparkline(running_, half)),
      labelled("tokens/s", "output " + number(load_.output_tokens_per_second(), 1) + "  prompt " +
                               number(load_.prompt_tokens_per_second(), 1)),
      labelled("", sparkline(output_rates_, half)),
      labelled("blocks", blocks_bar(load_, style, width)),
      labelled("", blocks_legend(load_, info_.block_size(), style.colours)),
      labelled("step", bar(phases, width, style.colours)),
      labelled("", phases_line(load_, style.colours)),
      labelled("", "mean " + number(load_.mean_step_ms(), 2) + " ms of the last 64 steps, last " +
                       number(load_.last_step_ms(), 2) + " ms"),
      labelled("total", totals_line(load_)),
  };
  for (std::string& line : out) {
    if (display_width(line) > style.columns) line = cut_to_width(line, style.columns - 1) + "\u2026";
  }
  return out;
}

}  // namespace folio::client
