// The PostgreSQL server of the suites: on a socket in a folder of its own, gone with the process that started it.

import { execFileSync, spawn } from "node:child_process";
import { chownSync, existsSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** Ends the server when its standard input does: with whoever started it, however that ends. */
const WARDEN = `"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off -c max_connections=200 >"$2/log" 2>&1 &
server=$!; cat >/dev/null; kill -INT "$server"; wait "$server"; rm -rf "$2"`;

function programs(): string {
  for (const folder of (process.env["PATH"] ?? "").split(delimiter)) {
    // A link on the path may have none of the other programs beside it.
    if (existsSync(join(folder, "initdb"))) return dirname(realpathSync(join(folder, "initdb")));
  }
  const parent = "/usr/lib/postgresql";
  const versions = existsSync(parent) ? readdirSync(parent).sort((a, b) => Number(b) - Number(a)) : [];
  const found = versions.map((version) => join(parent, version, "bin")).find((bin) => existsSync(join(bin, "initdb")));
  if (found === undefined) throw new Error("the tests need PostgreSQL: apt-get install postgresql");
  return found;
}

/** Whom to run the server as, where this process is root. */
function unprivileged(folder: string): { uid?: number; gid?: number } {
  if (statSync(folder).uid !== 0) return {};
  const users = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .map((line) => line.split(":"));
  const user = users.find(([name]) => name === "postgres") ?? users.find(([name]) => name === "nobody");
  if (user === undefined) throw new Error("PostgreSQL refuses to run as root, and there is no user nobody");
  return { uid: Number(user[2]), gid: Number(user[3]) };
}

/** Starts the server before the suites and ends it after them; they find its folder in the environment. */
export default async function setup(): Promise<() => Promise<void>> {
  const bin = programs();
  const folder = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "flovyn-node-pg-"));
  const user = unprivileged(folder);
  if (user.uid !== undefined) chownSync(folder, user.uid, user.gid as number);
  const made = ["-U", "flovyn", "--auth=trust", "--no-sync", "--no-instructions", "-E", "UTF8", "--locale=C"];
  execFileSync(join(bin, "initdb"), [...made, "-D", join(folder, "data")], { cwd: folder, stdio: "pipe", ...user });
  const warden = spawn("sh", ["-c", WARDEN, "warden", bin, folder], {
    cwd: folder,
    stdio: ["pipe", "ignore", "ignore"],
    detached: true,
    ...user,
  });
  const ended = new Promise<void>((resolve) => warden.on("close", () => resolve()));
  process.env["FLOVYN_TEST_POSTGRES"] = folder;
  process.env["FLOVYN_TEST_PSQL"] = join(bin, "psql");
  for (let attempt = 0; ; attempt++) {
    try {
      execFileSync(join(bin, "pg_isready"), ["-q", "-h", folder]);
      break;
    } catch (error) {
      if (attempt > 600) throw error;
      await sleep(50);
    }
  }
  return async () => {
    warden.stdin.end();
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
}
