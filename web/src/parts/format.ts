// Numbers, money, moments and spans as the reader's language writes them.

const count = new Intl.NumberFormat();
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayAndClock = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });

export function formatCount(value: number): string {
  return count.format(value);
}

export function formatTokens(value: number): string {
  return value < 10_000 ? count.format(value) : compact.format(value);
}

/** Money in US dollars, with the cents that small amounts need; unknown prices are said, never zero. */
export function formatCost(usd: number | null | undefined): string {
  if (usd === null || usd === undefined) return "unknown";
  const digits = usd !== 0 && Math.abs(usd) < 0.1 ? 4 : 2;
  return new Intl.NumberFormat(undefined, { style: "currency", currency: "USD", minimumFractionDigits: digits === 4 ? 2 : 2, maximumFractionDigits: digits }).format(usd);
}

export function formatMoment(at: string): string {
  return valid(at) ? moment.format(new Date(at)) : at;
}

export function formatClock(at: string): string {
  return valid(at) ? clock.format(new Date(at)) : at;
}

/** A moment of today by its clock, any other with its day. */
export function formatShort(at: string, now = new Date()): string {
  if (!valid(at)) return at;
  const date = new Date(at);
  return date.toDateString() === now.toDateString() ? clock.format(date) : dayAndClock.format(date);
}

const STEPS: readonly [Intl.RelativeTimeFormatUnit, number][] = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
  ["second", 1],
];

/** How far a moment is from now: `3 min. ago`, `in 2 hr.`. */
export function formatRelative(at: string, now = Date.now()): string {
  if (!valid(at)) return at;
  const seconds = (Date.parse(at) - now) / 1000;
  for (const [unit, size] of STEPS) {
    if (Math.abs(seconds) >= size || unit === "second") return relative.format(Math.round(seconds / size), unit);
  }
  return at;
}

/** A span: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`. */
export function formatSpan(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return "";
  if (seconds < 0.0995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${decimal(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const oneDecimal = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1, minimumFractionDigits: 1 });
function decimal(value: number): string {
  return oneDecimal.format(value);
}

export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${count.format(bytes)} B`;
  if (bytes < 1024 ** 2) return `${decimal(bytes / 1024)} KiB`;
  return `${decimal(bytes / 1024 ** 2)} MiB`;
}

export function valid(at: string): boolean {
  return !Number.isNaN(Date.parse(at));
}
