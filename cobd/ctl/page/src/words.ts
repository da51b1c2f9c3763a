// Durations, times, numbers and other texts. Pure, without the browser.

/** A duration as `cobctl` writes it: `0 ms`, `1.2 s`, `3 min 4 s`, `2 h 5 min`, `3 d 4 h`. */
export function span(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) ms = 0;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const two = (big: number, bigUnit: string, small: number, smallUnit: string) =>
    small > 0 ? `${big} ${bigUnit} ${small} ${smallUnit}` : `${big} ${bigUnit}`;
  if (seconds < 3600) return two(Math.floor(seconds / 60), "min", seconds % 60, "s");
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1440) return two(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.floor(minutes / 60);
  return two(Math.floor(hours / 24), "d", hours % 24, "h");
}

/** `1 host`, `2 hosts`. */
export function count(number: number, noun: string): string {
  return `${number.toLocaleString("en")} ${plural(number, noun)}`;
}

export function plural(number: number, noun: string): string {
  if (number === 1) return noun;
  return /(s|x|ch|sh)$/.test(noun) ? `${noun}es` : noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`;
}

const two = (number: number) => String(number).padStart(2, "0");

/** A moment by the clock of this computer: `14:03:05`, with the date if it is another day than `now`. */
export function moment(ms: number, now: number, withMs = false): string {
  const at = new Date(ms);
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const time = withMs ? `${clock}.${String(at.getMilliseconds()).padStart(3, "0")}` : clock;
  const today = new Date(now);
  const same = at.toDateString() === today.toDateString();
  return same ? time : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

/** The pieces of a text: names that `known` accepts, code between backticks, and plain text. */
export type Piece = { text: string; as: "plain" | "code" | "name" };

export function pieces(text: string, known: (name: string) => boolean): Piece[] {
  const found: Piece[] = [];
  const plain = (part: string) => {
    let from = 0;
    for (const match of part.matchAll(/[A-Za-z0-9_][A-Za-z0-9_.+-]*(?:\/[A-Za-z0-9_.+-]+)*/g)) {
      const name = match[0].replace(/[.]+$/, "");
      if (!known(name)) continue;
      if (match.index > from) found.push({ text: part.slice(from, match.index), as: "plain" });
      found.push({ text: name, as: "name" });
      from = match.index + name.length;
    }
    if (from < part.length) found.push({ text: part.slice(from), as: "plain" });
  };
  text.split("`").forEach((part, at) => {
    if (at % 2 === 1) found.push({ text: part, as: "code" });
    else if (part) plain(part);
  });
  return found;
}

/** The colour of a theme in `light-dark(LIGHT, DARK)`, which a canvas does not know. */
export function ofTheme(value: string, dark: boolean): string {
  const both = /^\s*light-dark\(([^,]+),([^,]+)\)\s*$/.exec(value);
  return (both ? both[dark ? 2 : 1]! : value).trim();
}
