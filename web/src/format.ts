// Numbers and times as people read them.

export function count(number: number, noun: string): string {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** `8 s`, `3 min`, `2 h 10 min`, `5 d`. */
export function span(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) {
    const minutes = Math.floor((whole % 3600) / 60);
    return `${Math.floor(whole / 3600)} h${minutes ? ` ${minutes} min` : ""}`;
  }
  return `${Math.floor(whole / 86400)} d`;
}

export function since(at: number): string {
  return at ? span(Date.now() / 1000 - at) : "";
}

export function clock(at: number): string {
  return at ? new Date(at * 1000).toLocaleTimeString("en-GB") : "";
}

/** `in 30 min, 22:32`; with the day where that is not today. */
export function soon(at: number, now = Date.now() / 1000): string {
  if (!at) return "";
  const date = new Date(at * 1000);
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const isToday = date.toDateString() === new Date(now * 1000).toDateString();
  const when = isToday ? time : `${date.toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short" })} ${time}`;
  return at > now ? `in ${span(at - now)}, ${when}` : `due since ${when}`;
}

export function gib(bytes: number): string {
  return `${Math.round(bytes / 2 ** 30).toLocaleString("en")} GiB`;
}

/** `NVIDIA-H100-80GB-HBM3` → `H100 80GB HBM3`. */
export function model(product: string): string {
  return product.replace(/^NVIDIA-/, "").replaceAll("-", " ");
}

/** `0, 1, 2, 5` → `0–2, 5`. */
export function ranges(numbers: readonly number[]): string {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let at = 0; at < sorted.length; ) {
    let end = at;
    while (sorted[end + 1] === sorted[end]! + 1) end += 1;
    parts.push(end > at + 1 ? `${sorted[at]}–${sorted[end]}` : sorted.slice(at, end + 1).join(", "));
    at = end + 1;
  }
  return parts.join(", ");
}
