// Charts over time, as SVG: lines and stacked areas. Where nothing was recorded there is nothing, not a zero.

export type Line = readonly (number | null)[];

export interface Curve {
  name: string;
  look: string;
  line: Line;
}

export interface Frame {
  start: number;
  end: number;
  step: number;
}

const WIDTH = 720;
const LEFT = 46;
const BOTTOM = 22;
const TOP = 8;
const SPACE = "http://www.w3.org/2000/svg";

function s(tag: string, attributes: Record<string, string | number>, ...children: (Node | string)[]): SVGElement {
  const made = document.createElementNS(SPACE, tag) as SVGElement;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/** A round number at or above `most`, for the end of the scale. */
export function scaleEnd(most: number): number {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  for (const step of [1, 2, 4, 5, 8, 10]) if (step * power >= most) return step * power;
  return 10 * power;
}

/** Runs of values that are there, as `[place, value]`: a line is broken where there is none. */
export function runs(line: Line): [number, number][][] {
  const found: [number, number][][] = [];
  let open: [number, number][] | null = null;
  line.forEach((value, place) => {
    if (value === null) open = null;
    else if (open) open.push([place, value]);
    else found.push((open = [[place, value]]));
  });
  return found;
}

/** Each curve on top of the ones before: `[below, above]` of every place. */
export function stack(lines: readonly Line[]): (readonly [number, number] | null)[][] {
  const below = new Array<number>(lines[0]?.length ?? 0).fill(0);
  return lines.map((line) =>
    line.map((value, place) => {
      if (value === null) return null;
      const from = below[place]!;
      below[place] = from + value;
      return [from, from + value] as const;
    }),
  );
}

export class Chart {
  private readonly height: number;
  readonly root: SVGElement;

  constructor(
    private readonly frame: Frame,
    private readonly most: number,
    private readonly label: (value: number) => string,
    words: string,
    height = 190,
  ) {
    this.height = height;
    this.root = s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": words });
    this.axes();
  }

  lines(curves: readonly Curve[]): this {
    for (const curve of curves) {
      for (const run of runs(curve.line)) {
        // A single value is drawn as wide as its step.
        const points = run.flatMap(([place, value]) => [this.at(place, value), this.at(place + 1, value)]);
        this.root.append(s("polyline", { class: `curve ${curve.look}`, points: points.join(" ") }));
      }
    }
    return this;
  }

  areas(curves: readonly Curve[]): this {
    stack(curves.map((curve) => curve.line)).forEach((levels, number) => {
      let place = 0;
      while (place < levels.length) {
        const first = place;
        while (place < levels.length && levels[place]) place += 1;
        if (place > first) this.root.append(this.area(levels.slice(first, place) as [number, number][], first, curves[number]!));
        place += 1;
      }
    });
    return this;
  }

  /** A line across, with its name. */
  mark(value: number, name: string): this {
    const y = this.y(value);
    this.root.append(
      s("line", { class: "mark", x1: LEFT, x2: WIDTH, y1: y, y2: y }),
      s("text", { class: "mark-name", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, name),
    );
    return this;
  }

  private area(levels: readonly [number, number][], first: number, curve: Curve): SVGElement {
    const above = levels.flatMap(([, value], place) => [this.at(first + place, value), this.at(first + place + 1, value)]);
    const below = levels.flatMap(([value], place) => [this.at(first + place, value), this.at(first + place + 1, value)]);
    return s("polygon", { class: `area ${curve.look}`, points: [...above, ...below.reverse()].join(" ") });
  }

  private axes(): void {
    for (const part of [0, 0.5, 1]) {
      const y = this.y(part * this.most);
      this.root.append(
        s("line", { class: "grid", x1: LEFT, x2: WIDTH, y1: y, y2: y }),
        s("text", { class: "axis", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, this.label(part * this.most)),
      );
    }
    const span = this.frame.end - this.frame.start;
    for (let part = 0; part <= 4; part += 1) {
      const at = this.frame.start + (span * part) / 4;
      const x = LEFT + ((WIDTH - LEFT) * part) / 4;
      const anchor = part === 0 ? "start" : part === 4 ? "end" : "middle";
      this.root.append(s("text", { class: "axis", x, y: this.height - 5, "text-anchor": anchor }, moment(at, span)));
    }
  }

  private at(place: number, value: number): string {
    const seconds = Math.min(place * this.frame.step, this.frame.end - this.frame.start);
    const x = LEFT + ((WIDTH - LEFT) * seconds) / (this.frame.end - this.frame.start);
    return `${x.toFixed(1)},${this.y(value).toFixed(1)}`;
  }

  private y(value: number): number {
    return TOP + (this.height - TOP - BOTTOM) * (1 - Math.min(value, this.most) / this.most);
  }
}

/** `14:30`, or `Tue 14:30`, or `17 Nov`, by how long the range is. */
export function moment(at: number, span: number): string {
  const date = new Date(at * 1000);
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (span <= 86400) return time;
  if (span <= 8 * 86400) return `${date.toLocaleDateString("en-GB", { weekday: "short" })} ${time}`;
  return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}
