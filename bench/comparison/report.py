"""The table: Markdown for readers, JSON with every figure of every round."""
import json
import os
import pathlib
from statistics import median
from typing import NamedTuple

from .cases import Case, Goal


class Row(NamedTuple):
    """One case with one KV type of folio's; figures by round, None where a round has none."""
    case: Case
    kv: str
    goal: Goal
    folio: list
    peers: dict    # name -> list of tokens a second
    reasons: dict  # name -> why it has none
    limit: float   # tokens a second, or None

    def counted(self) -> str:
        """The peer that counts: the fastest of those that the case names, or none where these have no figure."""
        known = [name for name in self.case.against if self.peers.get(name)]
        return max(known, key=lambda name: median(self.peers[name])) if known else ""

    def ratios(self) -> list:
        """To that peer, each within its round."""
        return [ours / theirs for ours, theirs in zip(self.folio, self.peers.get(self.counted(), [])) if theirs]

    def of_limit(self):
        return median(self.folio) / self.limit if self.folio and self.limit else None

    def verdict(self) -> str:
        """none (nothing to compare), below, must or aim."""
        if not self.ratios():
            return "none"
        ratio, share = median(self.ratios()), self.of_limit() or 0.0
        if ratio < self.goal.must:
            return "below"
        aimed = ratio >= self.goal.aim if self.goal.aim else share >= self.goal.of_limit
        return "aim" if aimed else "must"


def with_spread(figures: list, digits: int) -> str:
    if not figures:
        return "-"
    text = f"{median(figures):.{digits}f}"
    if len(figures) > 1:
        text += f" ({min(figures):.{digits}f} - {max(figures):.{digits}f})"
    return text


def aim_of(goal: Goal) -> str:
    return f"{goal.aim:g}" if goal.aim else f"{goal.of_limit:.0%} of the limit"


def markdown(rows: list, about: dict) -> str:
    names = about["peers"]
    peaks = about["peaks"]
    lines = ["# folio and its peers", "",
             f"{about['cpu']}, {about['threads']} threads, {about['date']}; {about['rounds']} rounds, folio and each "
             "peer in turn; medians, in brackets the least and the most. Tokens a second.",
             f"Peaks measured in the same run: read {peaks['read_bytes'] / 1e9:.1f} GB/s, "
             f"int8 {peaks['int8'] / 1e9:.0f}, f32 {peaks['f32'] / 1e9:.0f}, bf16 {peaks['bf16'] / 1e9:.0f} Gop/s.", ""]
    lines += [f"- {name}: {peer['version']}, KV {peer['kv']}" for name, peer in names.items()]
    head = ["case", "folio's KV", "folio"] + [f"{name} (KV {peer['kv']})" for name, peer in names.items()]
    head += ["ratio", "to", "must", "aim", "reached", "of the limit"]
    lines += ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    notes = []
    for row in rows:
        cells = [row.case.name, row.kv, with_spread(row.folio, 0)]
        for name in names:
            cells.append(with_spread(row.peers.get(name, []), 0))
        share = row.of_limit()
        cells += [with_spread(row.ratios(), 2), row.counted() or "-", f"{row.goal.must:g}", aim_of(row.goal),
                  row.verdict(), f"{share:.0%}" if share else "-"]
        lines.append("| " + " | ".join(cells) + " |")
        notes += [f"- {row.case.name}: {name}: {reason}" for name, reason in row.reasons.items()]
    if notes:
        lines += ["", "No figure (-), and why:", ""] + list(dict.fromkeys(notes))
    return "\n".join(lines) + "\n"


def as_json(rows: list, about: dict) -> str:
    found = []
    for row in rows:
        ratios = row.ratios()
        found.append({"case": row.case.name, "model": row.case.model, "measure": row.case.measure, "B": row.case.batch,
                      "PP": row.case.prompt, "TG": row.case.output, "shared_prefix": row.case.prefix,
                      "folio_kv": row.kv, "folio_tok_s": row.folio, "peers_tok_s": row.peers, "no_figure": row.reasons,
                      "ratio_to": row.counted() or None, "ratios": [round(r, 3) for r in ratios],
                      "ratio": round(median(ratios), 3) if ratios else None, "must": row.goal.must,
                      "aim": row.goal.aim or None, "aim_of_limit": row.goal.of_limit or None, "reached": row.verdict(),
                      "limit_tok_s": round(row.limit, 1) if row.limit else None,
                      "of_limit": round(row.of_limit(), 3) if row.of_limit() else None})
    return json.dumps({"about": about, "rows": found}, indent=1) + "\n"


def write(rows: list, about: dict, folder: pathlib.Path) -> None:
    """Whole files or none: a run that is cut off leaves the state of its last case."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("compare.md", markdown(rows, about)), ("compare.json", as_json(rows, about))):
        scratch = folder / f"{name}.tmp"
        scratch.write_text(text)
        os.replace(scratch, folder / name)
