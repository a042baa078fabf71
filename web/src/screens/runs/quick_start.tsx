// What a server without runs shows: how to make the first one, to be copied.
import { Link } from "@tanstack/react-router";
import { Activity } from "lucide-react";
import { buttonClass } from "../../parts/button";
import { CopyButton } from "../../parts/copy";
import { Empty } from "../../parts/states";

const program = `import asyncio
import flovyn

@flovyn.agent
async def hello(ctx, name: str) -> str:
    return f"Hello, {name}!"

async def main() -> None:
    # FLOVYN_URL and FLOVYN_TOKEN say which server.
    async with flovyn.connect() as client, client.worker(agents=[hello]):
        print(await (await client.start(hello, "otter")).result())

asyncio.run(main())`;

export function QuickStart() {
  return (
    <Empty title="No runs yet" icon={<Activity size={28} aria-hidden />}>
      <p>A worker offers agents, and a run is started of one. This program does both:</p>
      <div className="relative mt-3 text-left">
        <pre tabIndex={0} className="overflow-x-auto rounded-lg border border-line bg-surface p-3 pr-10 font-mono text-xs leading-5 text-ink">
          {program}
        </pre>
        <div className="absolute top-1 right-1">
          <CopyButton text={program} label="Copy the program" />
        </div>
      </div>
      <p className="mt-4">
        <Link to="/runs/new" search={{}} className={buttonClass("plain")}>
          Start one here
        </Link>
      </p>
    </Empty>
  );
}
