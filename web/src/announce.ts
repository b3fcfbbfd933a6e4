// Tells a screen reader what becomes of jobs: a sentence every few seconds at most, and counts instead of many names.

import type { Job, JobState } from "./model";

const PAUSE = 4000;
const MOST_NAMES = 2;
/** What is worth a word; a job that starts or stops is on its way to one of these. */
const WORDS: Partial<Record<JobState, [one: string, many: string]>> = {
  waiting: ["waits", "wait"],
  running: ["runs", "run"],
  done: ["has ended", "have ended"],
  failed: ["has failed", "have failed"],
};

export class Announcer {
  private readonly changed = new Map<string, { before: JobState | undefined; job: Job }>();
  private due = false;

  constructor(
    private readonly speak: (words: string) => void,
    private readonly later: (act: () => void) => void = (act) => setTimeout(act, PAUSE),
  ) {}

  heard(before: JobState | undefined, job: Job): void {
    if (before === job.state) return;
    this.changed.set(job.key, { before: this.changed.get(job.key)?.before ?? before, job });
    if (this.due) return;
    this.due = true;
    this.later(() => this.tell());
  }

  private tell(): void {
    this.due = false;
    const jobs = [...this.changed.values()].filter(({ before, job }) => before !== job.state).map(({ job }) => job);
    this.changed.clear();
    const words = sentence(jobs);
    if (words) this.speak(words);
  }
}

export function sentence(jobs: readonly Job[]): string {
  const told = jobs.filter((job) => WORDS[job.state] !== undefined);
  if (told.length <= MOST_NAMES) return told.map(ofOne).join(" ");
  const parts = Object.entries(WORDS).flatMap(([state, [one, many]]) => {
    const number = told.filter((job) => job.state === state).length;
    return number ? [`${number} ${number === 1 ? "job" : "jobs"} ${number === 1 ? one : many}`] : [];
  });
  return `${parts.join(", ")}.`;
}

function ofOne(job: Job): string {
  const why = job.state === "waiting" && job.why ? `: ${job.why.replace(/\.$/, "")}` : "";
  return `${job.name} ${WORDS[job.state]![0]}${why}.`;
}
