#include "client/plot.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string_view>

#include "client/plot_axis.h"
#include "client/plot_text.h"

namespace folio::client {
namespace {

// Pixels.
constexpr double kPageWidth = 760, kMargin = 16;
constexpr double kFrameLeft = 74, kFrameRight = kPageWidth - 24, kFrameHeight = 280;
constexpr double kFrameWidth = kFrameRight - kFrameLeft;
constexpr double kTextSize = 12, kTitleSize = 15, kLine = 18;
constexpr int kTicksAcross = 9, kTicksUp = 7;
constexpr std::size_t kMostMarks = 20;
constexpr int kMarkRows = 4;
// Thinning: of each stretch at most 4 points and a break.
constexpr std::size_t kStretches = 400, kMostPoints = 5 * kStretches;
constexpr std::size_t kMostShapes = 100;  // more points than this are dots, whatever the series
constexpr std::size_t kNumColours = 8;

// Colours that stand out on both pages, lighter ones on the dark page. A viewer that knows no colour schemes shows the
// light one.
constexpr std::string_view kStyle = R"(<style>
svg{background:#fff;color:#1f2328;font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
text{fill:#1f2328;font-size:12px}.t{font-size:15px;font-weight:600}.m{fill:#59636e}.page{fill:#fff}
.g{stroke:#d8dee4;fill:none}.f{stroke:#8c959f;fill:none}.k{stroke:#59636e;fill:none;stroke-dasharray:4 3}
.l{fill:none;stroke:currentColor;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.p{fill:none;stroke:currentColor;stroke-width:5;stroke-linecap:round}.h{fill:currentColor}
.c0{color:#1f6fc4}.c1{color:#d1495b}.c2{color:#23906a}.c3{color:#8e5bb5}.c4{color:#b86e00}.c5{color:#2590aa}
.c6{color:#6e7781}.c7{color:#b0578d}
@media (prefers-color-scheme:dark){svg{background:#0d1117;color:#e6edf3}text{fill:#e6edf3}.m{fill:#9198a1}
.page{fill:#0d1117}.g{stroke:#272d35}.f{stroke:#656c76}.k{stroke:#9198a1}
.c0{color:#6cb6ff}.c1{color:#ff7b85}.c2{color:#5bd6a0}.c3{color:#c79bf2}.c4{color:#f2b24c}.c5{color:#67d3e8}
.c6{color:#b1bac4}.c7{color:#f09ac8}}
</style>
)";

struct Place {
  double x = 0, y = 0;
  bool is_break = false;  // nothing here, and no line across
};

std::string number(double value) {
  char text[32];
  const double rounded = std::round(value * 10) / 10 + 0.0;  // no "-0"
  const auto end = std::to_chars(std::begin(text), std::end(text), rounded, std::chars_format::fixed);
  return std::string(text, end.ptr);
}

std::string pair_of(double x, double y) {
  return number(x) + " " + number(y);
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view css, const std::string& words) {
  std::string out = "<text x=\"" + number(x) + "\" y=\"" + number(y) + '"';
  if (anchor != "start") out += " text-anchor=\"" + std::string(anchor) + '"';
  if (!css.empty()) out += " class=\"" + std::string(css) + '"';
  return out + '>' + xml_escaped(words) + "</text>\n";
}

std::string path_of(const std::string& css, const std::string& d) {
  return "<path class=\"" + css + "\" d=\"" + d + "\"/>\n";
}

std::string line_between(const std::string& css, double x1, double y1, double x2, double y2) {
  return path_of(css, "M" + pair_of(x1, y1) + "L" + pair_of(x2, y2));
}

class Range {
 public:
  void add(double value) {
    low_ = low_ ? std::min(*low_, value) : value;
    high_ = high_ ? std::max(*high_, value) : value;
  }
  std::optional<AxisScale> scale(const PlotAxis& axis, int wanted) const {
    if (!low_) return std::nullopt;
    return AxisScale(*low_, *high_, axis.logarithmic, wanted);
  }

 private:
  std::optional<double> low_, high_;
};

bool is_placed(const Plot& plot, const std::pair<double, double>& point) {
  return can_place(point.first, plot.x.logarithmic) && can_place(point.second, plot.y.logarithmic);
}

// The marks that are drawn.
std::vector<std::pair<double, std::string>> marks_of(const Plot& plot) {
  auto marks = plot.marks;
  std::erase_if(marks, [&](const auto& mark) { return !can_place(mark.first, plot.x.logarithmic); });
  if (marks.size() > kMostMarks) marks.resize(kMostMarks);
  return marks;
}

// First, last, lowest and highest of each of kStretches equal stretches, in their order, and whether there was a break.
std::vector<Place> thinned(const std::vector<Place>& places) {
  if (places.size() <= kMostPoints) return places;
  std::vector<Place> out;
  for (std::size_t stretch = 0; stretch < kStretches; ++stretch) {
    const std::size_t begin = places.size() * stretch / kStretches;
    const std::size_t end = places.size() * (stretch + 1) / kStretches;
    std::vector<std::size_t> kept;  // first, last, lowest, highest
    std::optional<std::size_t> gap;
    for (std::size_t i = begin; i < end; ++i) {
      if (places[i].is_break) {
        gap = gap.value_or(i);
      } else if (kept.empty()) {
        kept.assign(4, i);
      } else {
        kept[1] = i;
        if (places[i].y > places[kept[2]].y) kept[2] = i;
        if (places[i].y < places[kept[3]].y) kept[3] = i;
      }
    }
    if (gap) kept.push_back(*gap);
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (const std::size_t i : kept) out.push_back(places[i]);
  }
  return out;
}

// One plot, drawn downwards from a place on the page.
class Drawing {
 public:
  Drawing(const Plot& plot, double top) : plot_(plot), marks_(marks_of(plot)), bottom_(top) {}

  std::string draw();
  double bottom() const { return bottom_; }

 private:
  void measure();
  void draw_legend();
  void draw_axes();
  void draw_marks();
  void draw_series(std::size_t index);
  std::vector<Place> places_of(const PlotSeries& series) const;
  double across(double x) const { return kFrameLeft + kFrameWidth * x_->place(x); }
  double down(double y) const { return frame_top_ + kFrameHeight * (1 - y_->place(y)); }

  const Plot& plot_;
  const std::vector<std::pair<double, std::string>> marks_;
  std::optional<AxisScale> x_, y_;  // none without any point
  double frame_top_ = 0;
  double bottom_;  // of what is drawn so far
  std::string out_;
};

std::string colour(std::size_t index) {
  return "c" + std::to_string(index % kNumColours);
}

// A small form around the current point; a dot is the stroke's round end.
std::string_view shape(std::size_t index) {
  constexpr std::string_view kShapes[] = {"m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z", "m-2.7-2.7h5.4v5.4h-5.4z",
                                          "m0-3.6l3.5 6h-7z", "m0-3.8l3.8 3.8-3.8 3.8-3.8-3.8z"};
  return kShapes[index % std::size(kShapes)];
}

std::string line_css(std::size_t index) {
  return "l " + colour(index);
}

// Lines of the same colour differ by their dashes.
std::string line_path(std::size_t index, const std::string& d) {
  constexpr std::string_view kDashes[] = {"", "7 4", "2 4", "9 4 2 4"};
  const std::string_view dashes = kDashes[index / kNumColours % std::size(kDashes)];
  std::string path = path_of(line_css(index), d);
  if (!dashes.empty())
    path.insert(std::string_view("<path").size(), " stroke-dasharray=\"" + std::string(dashes) + '"');
  return path;
}

std::string points_path(std::size_t index, const std::vector<Place>& places) {
  const bool dots = places.size() > kMostShapes;
  std::string d;
  for (const Place& at : places) {
    if (!at.is_break) d += "M" + pair_of(at.x, at.y) + std::string(dots ? "h0" : shape(index));
  }
  return path_of((dots ? "p " : "h ") + colour(index), d);
}

std::string joined_path(std::size_t index, const std::vector<Place>& places) {
  std::string d;
  bool starts = true;
  std::string last;
  for (const Place& at : places) {
    const std::string here = pair_of(at.x, at.y);
    if (!at.is_break && (starts || here != last)) {
      d += (starts ? "M" : "L") + here;
      if (starts) d += "h0";  // so that a point between two breaks is seen
    }
    starts = at.is_break;
    last = here;
  }
  return line_path(index, d);
}

void Drawing::measure() {
  Range x, y;
  for (const PlotSeries& series : plot_.series) {
    for (const auto& point : series.points) {
      if (!is_placed(plot_, point)) continue;
      x.add(point.first);
      y.add(point.second);
    }
  }
  y_ = y.scale(plot_.y, kTicksUp);
  if (!y_) return;
  for (const auto& mark : marks_) x.add(mark.first);
  x_ = x.scale(plot_.x, kTicksAcross);
}

std::string Drawing::draw() {
  measure();
  bottom_ += kTitleSize + 4;
  if (!plot_.title.empty()) {
    out_ += text_at(kFrameLeft, bottom_, "start", "t", cut_to(plot_.title, kTitleSize, kFrameWidth));
  }
  draw_legend();
  frame_top_ = bottom_ + kLine + 8;  // the y axis' words are between
  out_ += text_at(kMargin, frame_top_ - 9, "start", "m", cut_to(plot_.y.label, kTextSize, kPageWidth - 2 * kMargin));
  bottom_ = frame_top_ + kFrameHeight;
  if (y_) {
    draw_axes();
    draw_marks();
    for (std::size_t i = 0; i < plot_.series.size(); ++i) draw_series(i);
  } else {
    out_ += text_at(kFrameLeft + kFrameWidth / 2, frame_top_ + kFrameHeight / 2, "middle", "m", "no data");
  }
  out_ += path_of("f", "M" + pair_of(kFrameLeft, frame_top_) + "V" + number(bottom_) + "H" + number(kFrameRight));
  bottom_ += 2 * kLine + 2;
  out_ += text_at(kFrameLeft + kFrameWidth / 2, bottom_, "middle", "m", cut_to(plot_.x.label, kTextSize, kFrameWidth));
  return out_;
}

void Drawing::draw_legend() {
  constexpr double kSample = 26, kGap = 18;
  std::vector<std::string> names;
  double width = 0;  // of a column
  for (const PlotSeries& series : plot_.series) {
    names.push_back(cut_to(series.name, kTextSize, kFrameWidth - kSample));
    width = std::max(width, kSample + text_width(names.back(), kTextSize));
  }
  double at = kFrameRight;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    if (at + width > kFrameRight) {
      at = kFrameLeft;
      bottom_ += kLine;
    }
    const double middle = bottom_ - 4;
    const PlotSeries::Style style = plot_.series[i].style;
    if (style != PlotSeries::Style::kPoints) out_ += line_path(i, "M" + pair_of(at, middle) + "h18");
    if (style != PlotSeries::Style::kLine) out_ += points_path(i, {{at + 9, middle, false}});
    out_ += text_at(at + kSample, bottom_, "start", "", names[i]);
    at += width + kGap;
  }
}

void Drawing::draw_axes() {
  double free_from = 0;  // words that would run into the ones before are left out
  for (const AxisTick& tick : x_->ticks()) {
    const double x = across(tick.value);
    out_ += line_between("g", x, frame_top_, x, bottom_);
    const double half = text_width(tick.label, kTextSize) / 2;
    if (x - half < free_from) continue;
    free_from = x + half + 4;
    out_ += text_at(std::min(x, kPageWidth - 2 - half), bottom_ + kLine - 2, "middle", "m", tick.label);
  }
  double free_below = frame_top_ + kFrameHeight + kTextSize;
  for (const AxisTick& tick : y_->ticks()) {
    const double y = down(tick.value);
    out_ += line_between("g", kFrameLeft, y, kFrameRight, y);
    if (y + kTextSize / 2 > free_below) continue;
    free_below = y - kTextSize / 2 - 1;
    out_ += text_at(kFrameLeft - 7, y + 4, "end", "m", cut_to(tick.label, kTextSize, kFrameLeft - 9));
  }
}

void Drawing::draw_marks() {
  int row = 0;
  for (const auto& [at, words] : marks_) {
    const double x = across(at);
    const bool to_left = x > kFrameLeft + kFrameWidth / 2;
    const double room = (to_left ? x - kFrameLeft : kFrameRight - x) - 8;
    out_ += line_between("k", x, frame_top_, x, bottom_);
    out_ += text_at(x + (to_left ? -5 : 5), frame_top_ + 14 + kLine * row, to_left ? "end" : "start", "m",
                    cut_to(words, kTextSize, room));
    row = (row + 1) % kMarkRows;
  }
}

std::vector<Place> Drawing::places_of(const PlotSeries& series) const {
  std::vector<Place> places;
  for (const auto& point : series.points) {
    if (is_placed(plot_, point)) {
      places.push_back({across(point.first), down(point.second), false});
    } else if (places.empty() || !places.back().is_break) {
      places.push_back({0, 0, true});
    }
  }
  return thinned(places);
}

void Drawing::draw_series(std::size_t index) {
  const PlotSeries& series = plot_.series[index];
  const std::vector<Place> places = places_of(series);
  if (std::all_of(places.begin(), places.end(), [](const Place& at) { return at.is_break; })) return;
  if (series.style != PlotSeries::Style::kPoints) out_ += joined_path(index, places);
  if (series.style != PlotSeries::Style::kLine) out_ += points_path(index, places);
}

}  // namespace

std::string to_svg(const std::string& title, const std::vector<Plot>& plots) {
  std::string body;
  double bottom = kMargin;
  std::string_view rest = title;
  for (bool first = true; !rest.empty(); first = false) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    const double size = first ? kTitleSize : kTextSize;
    bottom += first ? kTitleSize : kLine;
    body += text_at(kMargin, bottom, "start", first ? "t" : "m", cut_to(line, size, kPageWidth - 2 * kMargin));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  }
  for (const Plot& plot : plots) {
    Drawing drawing(plot, bottom + kMargin);
    body += drawing.draw();
    bottom = drawing.bottom();
  }
  const std::string size = number(kPageWidth) + " " + number(bottom + kMargin);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + size + "\" width=\"" + number(kPageWidth) +
         "\" height=\"" + number(bottom + kMargin) + "\" role=\"img\">\n<title>" + xml_escaped(title) + "</title>\n" +
         std::string(kStyle) + "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n" + body + "</svg>\n";
}

}  // namespace folio::client
