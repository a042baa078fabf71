// Owns how a measured Node program looks at itself: percentiles, memory, CPU, files, and the line it prints.

import { readdirSync, readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(new URL("../../bindings-node/package.json", import.meta.url));

/** The package, with the release build of its addon where the runner names one (`FLOVYN_NATIVE`). */
export const flovyn = require("@flovyn/sdk");

/** The result of one small step: about 200 bytes as JSON. */
export const STEP_RESULT = { ok: true, text: "x".repeat(170) };

const directory = process.env.BENCH_DIR ?? ".";

/** Where our runs are kept: what the runner started, else a SQLite file in its directory. */
export const url = process.env.BENCH_URL ?? `sqlite:${join(directory, "flovyn.db")}`;

/** The arguments as numbers. */
export const sizes = process.argv.slice(2).map(Number);

/** The value below which `share` of the values lie; NaN when there are none. */
export function percentile(values, share) {
  const ordered = [...values].sort((a, b) => a - b);
  return ordered[Math.min(ordered.length - 1, Math.floor(ordered.length * share))] ?? NaN;
}

/** Prints one line of figures for the runner; units are in the names. */
export function emit(figures) {
  console.log(`@@${JSON.stringify(figures)}`);
}

/** Resident memory in MiB, or the most it ever was. */
export function rssMb(peak = false) {
  const line = readFileSync("/proc/self/status", "utf8").match(peak ? /VmHWM:\s+(\d+)/ : /VmRSS:\s+(\d+)/);
  return Number(line[1]) / 1024;
}

/** The size of all files of the sample. */
export function storedBytes() {
  const files = readdirSync(directory, { recursive: true, withFileTypes: true }).filter((file) => file.isFile());
  return files.reduce((sum, file) => sum + statSync(join(file.parentPath ?? file.path, file.name)).size, 0);
}

/** Wall-clock and CPU time since its start, in seconds. */
export class Span {
  #start = performance.now();
  #cpu = process.cpuUsage();

  get wall() {
    return (performance.now() - this.#start) / 1e3;
  }

  get cpu() {
    const { user, system } = process.cpuUsage(this.#cpu);
    return (user + system) / 1e6;
  }
}
