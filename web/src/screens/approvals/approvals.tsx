// The inbox: every question to a person, of all runs, answered without opening the run.
import { titleOf } from "@flovyn/react/client";
import type { OpenQuestion } from "@flovyn/react/client";
import { useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { AlarmClock, ShieldCheck } from "lucide-react";
import { useEffect, useState } from "react";
import type { Run } from "../../api/client";
import { openQuestionsQuery, waitingQuery } from "../../api/queries";
import { Button } from "../../parts/button";
import { classNames } from "../../parts/class_names";
import { formatRelative } from "../../parts/format";
import { PageBody, PageHead } from "../../parts/page";
import { Markdown } from "../../parts/markdown";
import { Empty, Failed, Loading } from "../../parts/states";
import { ApprovalForm, InputForm } from "../run/approval";
import { Given } from "../run/result_view";
import { nameOf } from "../run/tool_names";
import { Decided } from "./decided";

/** How many runs are read at a time. */
const MOST = 40;
const SNOOZE_MS = 60 * 60_000;
const KEY = "flovyn.snoozed";

function readSnoozed(): Record<string, number> {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return typeof found === "object" && found !== null ? (found as Record<string, number>) : {};
  } catch {
    return {};
  }
}

export function Approvals() {
  const client = useQueryClient();
  const waiting = useQuery(waitingQuery);
  const runs = (waiting.data ?? []).slice(0, MOST);
  const read = useQueries({ queries: runs.map((run) => openQuestionsQuery(run)) });
  const [snoozed, setSnoozed] = useState(readSnoozed);
  const [isAll, setAll] = useState(false);
  useEffect(() => {
    try {
      localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(Object.entries(snoozed).filter(([, until]) => until > Date.now()))));
    } catch {
      // A browser that stores nothing forgets what was put off.
    }
  }, [snoozed]);

  const questions = runs.flatMap((run, index) => (read[index]?.data ?? []).map((question) => ({ run, question })));
  const isPutOff = (question: OpenQuestion) => (snoozed[keyOf(question)] ?? 0) > Date.now();
  const shown = questions.filter(({ question }) => isAll || !isPutOff(question)).sort((left, right) => (left.question.at < right.question.at ? -1 : 1));
  const putOff = questions.filter(({ question }) => isPutOff(question)).length;
  const failed = read.find((each) => each.isLoadingError);
  const isReading = waiting.isPending || read.some((each) => each.isPending);

  const isDecided = useSearch({ from: "/frame/approvals" }).decided === true;
  const tabs = (
    <div role="tablist" aria-label="Approvals" className="flex gap-1 px-3">
      {[false, true].map((decided) => (
        <Link
          key={String(decided)}
          role="tab"
          aria-selected={decided === isDecided}
          to="/approvals"
          search={decided ? { decided: true } : {}}
          className={classNames("border-b-2 px-2.5 pb-1.5 text-sm whitespace-nowrap", decided === isDecided ? "border-accent font-medium text-ink" : "border-transparent text-soft hover:text-ink")}
        >
          {decided ? "Decided" : "Open"}
        </Link>
      ))}
    </div>
  );
  if (isDecided) {
    return (
      <>
        <PageHead title="Approvals" below={tabs} />
        <PageBody>
          <Decided />
        </PageBody>
      </>
    );
  }
  return (
    <>
      <PageHead title="Approvals" below={tabs}>
        {putOff > 0 && (
          <Button tone="quiet" onClick={() => setAll(!isAll)}>
            {isAll ? "Hide" : "Show"} {putOff} put off
          </Button>
        )}
        <Button onClick={() => void client.invalidateQueries({ queryKey: ["waiting"] })}>Look again</Button>
      </PageHead>
      <div className="min-h-0 flex-1 overflow-y-auto">
        {waiting.isLoadingError && <Failed error={waiting.error} onRetry={() => void waiting.refetch()} />}
        {failed && <Failed error={failed.error} onRetry={() => void failed.refetch()} />}
        {isReading && !shown.length ? (
          <Loading what="Looking for questions" />
        ) : !shown.length && !failed ? (
          <Empty title="Nobody waits for you" icon={<ShieldCheck size={28} aria-hidden />}>
            Calls that need a person, and questions of agents and servers, stand here: the oldest first.
          </Empty>
        ) : (
          <ul className="mx-auto flex max-w-3xl flex-col gap-4 p-4">
            {shown.map(({ run, question }) => (
              <Question key={`${run.id} ${keyOf(question)}`} run={run} question={question} onPutOff={() => setSnoozed({ ...snoozed, [keyOf(question)]: Date.now() + SNOOZE_MS })} />
            ))}
          </ul>
        )}
        {(waiting.data?.length ?? 0) > MOST && <p className="p-4 text-center text-xs text-faint">The questions of {MOST} runs are shown; decide some, and the others follow.</p>}
      </div>
    </>
  );
}

function keyOf(question: OpenQuestion): string {
  return `${question.block.call.id} ${question.block.approval?.hash ?? question.block.input?.hash ?? ""}`;
}

function Question({ run, question, onPutOff }: { run: Run; question: OpenQuestion; onPutOff: () => void }) {
  const { block, why } = question;
  return (
    <li className="flex flex-col gap-2.5 rounded-xl border border-line bg-surface p-4">
      <div className="flex flex-wrap items-baseline gap-x-2 text-sm">
        <span className="font-semibold">{nameOf(block.call.name)}</span>
        <span className="text-faint">in</span>
        <Link to="/runs/$id" params={{ id: run.id }} search={{}} className="min-w-0 truncate text-accent underline underline-offset-2">
          {titleOf(run)}
        </Link>
        <span className="text-xs text-faint">
          {run.kind} · {formatRelative(question.at)}
        </span>
        <Button small tone="quiet" icon={<AlarmClock size={13} />} className="ml-auto" onClick={onPutOff} title="Not now: it comes back in an hour, in this browser">
          Later
        </Button>
      </div>
      {why && (
        <div className="max-h-24 overflow-y-auto border-l-2 border-line pl-3 text-soft" tabIndex={0}>
          <Markdown text={why} />
        </div>
      )}
      <Given call={block.call} />
      {block.approval && <ApprovalForm run={run.id} asked={block.approval} isOpen />}
      {block.input && !block.approval && <InputForm run={run.id} asked={block.input} />}
    </li>
  );
}
