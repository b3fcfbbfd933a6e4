// Which page is shown (Now, Time, Teams, Changes, or a job's past); of the past, which range of time, and what the server
// says about it.

import { byId, h } from "./dom";
import { jobPage, type JobPast } from "./job-past";
import { teamsPage, type TeamView } from "./teams";
import { timePage, type TimeView } from "./time";

type Place = "now" | "time" | "teams" | "job" | "changes";
const RECORDED: readonly Place[] = ["time", "teams", "job"];
const RANGES: readonly [name: string, seconds: number][] = [
  ["6 hours", 6 * 3600],
  ["24 hours", 86400],
  ["7 days", 7 * 86400],
  ["30 days", 30 * 86400],
];
const AGAIN = 60_000;

export class Past {
  private place: Place = "now";
  /** `namespace/Kind/name`, of which the past is shown. */
  private job = "";
  private seconds = 86400;
  /** A range that was typed; else the last `seconds`. */
  private fixed: [start: number, end: number] | null = null;
  private asked = 0;
  private readonly root = byId("past");
  private readonly body = h("div", { class: "past-body", "aria-live": "polite" });
  private readonly from = h("input", { type: "datetime-local", id: "range-from" });
  private readonly to = h("input", { type: "datetime-local", id: "range-to" });
  private readonly buttons = RANGES.map(([name, seconds]) => {
    const made = h("button", { type: "button", "aria-pressed": seconds === this.seconds }, name);
    made.addEventListener("click", () => this.last(seconds));
    return made;
  });

  /** `seen` is called when another page is shown. */
  constructor(private readonly seen: () => void) {
    const go = h("button", { type: "button" }, "Show");
    go.addEventListener("click", () => this.typed());
    const label = (words: string, input: HTMLElement) => h("label", { for: input.id }, words, input);
    const chooser = h("div", { class: "ranges", role: "group", "aria-label": "Range of time" });
    chooser.append(h("span", {}, "Last"), ...this.buttons, label("From", this.from), label("to", this.to), go);
    this.root.append(chooser, this.body);
    for (const tab of document.querySelectorAll<HTMLElement>(".pages button")) {
      tab.addEventListener("click", () => this.go(tab.dataset.place as Place));
    }
    setInterval(() => {
      if (RECORDED.includes(this.place) && !this.fixed && !document.hidden) void this.load();
    }, AGAIN);
    addEventListener("hashchange", () => this.goToAddress());
    document.querySelector(".skip")!.addEventListener("click", (event) => this.skip(event));
    this.goToAddress();
  }

  /** `/#time` is a link to the Time view, `/#job=default/Job/train` one to a job's past. */
  private goToAddress(): void {
    const [named, key = ""] = location.hash.slice(1).split(/=(.*)/s);
    if (named === "job" && key) this.job = decodeURIComponent(key);
    if (named === "time" || named === "teams" || named === "changes" || (named === "job" && this.job)) this.go(named);
    else if (!named && this.place !== "now") this.go("now");
  }

  go(place: Place): void {
    this.place = place;
    document.body.dataset.place = place;
    const address = place === "job" ? `#job=${encodeURIComponent(this.job)}` : `#${place}`;
    history.replaceState(null, "", place === "now" ? location.pathname : address);
    for (const tab of document.querySelectorAll<HTMLElement>(".pages button")) {
      tab.setAttribute("aria-pressed", String(tab.dataset.place === place));
    }
    this.root.hidden = !RECORDED.includes(place);
    byId("changes").hidden = place !== "changes";
    this.seen();
    if (!this.root.hidden) void this.load();
  }

  /** To what is shown: the GPUs are only there on the first page. */
  private skip(event: Event): void {
    if (this.place === "now") return;
    event.preventDefault();
    (this.root.hidden ? byId("changes") : this.root).focus();
  }

  private last(seconds: number): void {
    this.seconds = seconds;
    this.fixed = null;
    void this.load();
  }

  private typed(): void {
    const [start, end] = [this.from.value, this.to.value].map((text) => Math.floor(new Date(text).getTime() / 1000));
    if (!(start! < end!)) return this.say("Choose two times, the earlier one first.");
    this.fixed = [start!, end!];
    void this.load();
  }

  private async load(): Promise<void> {
    const now = Math.floor(Date.now() / 1000);
    const [start, end] = this.fixed ?? [now - this.seconds, now];
    this.buttons.forEach((button, place) => {
      button.setAttribute("aria-pressed", String(!this.fixed && RANGES[place]![1] === this.seconds));
    });
    const number = ++this.asked;
    const place = this.place;
    this.root.setAttribute("aria-busy", "true");
    try {
      const about = place === "job" ? `&key=${encodeURIComponent(this.job)}` : "";
      const answer = await fetch(`/${place}?from=${start}&to=${end}${about}`, { cache: "no-store" });
      if (number !== this.asked) return;
      if (!answer.ok) this.say((await answer.text()).trim() || `The server answered ${answer.status}.`);
      else if (place === "time") this.body.replaceChildren(...timePage((await answer.json()) as TimeView));
      else if (place === "job") this.body.replaceChildren(...jobPage((await answer.json()) as JobPast));
      else this.body.replaceChildren(...teamsPage((await answer.json()) as TeamView));
    } catch {
      if (number === this.asked) this.say("The server can't be reached. What is shown may be old.");
    } finally {
      if (number === this.asked) this.root.removeAttribute("aria-busy");
    }
  }

  private say(words: string): void {
    this.body.replaceChildren(h("p", { class: "past-note", role: "alert" }, words));
  }
}
