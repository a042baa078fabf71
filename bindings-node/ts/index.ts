// Flovyn for Node: durable execution of AI agents as plain async functions.

import { install } from "./debug.js";
import { native } from "./native.js";

export {
  Agent,
  agent,
  type AgentFunction,
  type AgentOptions,
  type AnyAgent,
  type AnyAgentFunction,
  append,
  merge,
  type OnDivergence,
  type OnError,
  type Reducer,
  type ShapedAgentFunction,
} from "./agent.js";
export { Blob } from "./blob.js";
export { Client, connect, shared, type StartOptions } from "./client.js";
export {
  type Desk,
  type LimitedQueue,
  type QueueLimit,
  type QueueLoad,
  type RunsFilter,
  type Schedule,
  type ScheduleOptions,
  type WorkerFacts,
} from "./desk.js";
export { AgentContext, type ContextRef, type EntryOptions, type StepOptions, type UsageOptions } from "./context.js";
export { Daemon, daemon, type DaemonOptions } from "./daemon.js";
export type { InputOf } from "./declared.js";
export * from "./errors.js";
export {
  type DataEvent,
  type EntryEvent,
  type Event,
  type GapEvent,
  type LifecycleEvent,
  replaces,
  type RetractEvent,
  type TokenEvent,
  type UsageEvent,
} from "./events.js";
export {
  type CheckpointFacts,
  type Delivery,
  type Described,
  type Execution,
  type Failure,
  type ForkOptions,
  type ModelUsage,
  type ResumeOptions,
  Handle,
  type Status,
  type TaskFacts,
} from "./handle.js";
export { type LogEntry, type Logger, setLogger } from "./log.js";
export type { Message, Messages } from "./message.js";
export { Local, type Mode, Remote } from "./mode.js";
export { type Retry, RetryAfter, type RetryIf } from "./retry.js";
export { run, type RunOptions, stream } from "./run.js";
export type { Serializer } from "./serializer.js";
export type { Stored, StoredPart } from "./stored.js";
export type { SchemaIssue, SchemaResult, StandardSchema } from "./schema.js";
export { Child, type HandoffOptions, type Persistence, type SpawnOptions } from "./child.js";
export type { AnyChild, ChildEvent, ChildOverrun, ChildRequest } from "./childEvents.js";
export { Step } from "./step.js";
export {
  type CallOptions,
  type SideEffects,
  type Task,
  task,
  TaskContext,
  type TaskFunction,
  type TaskOptions,
} from "./task.js";
export { type AnyTask, Worker, type WorkerOptions } from "./worker.js";

/** The version of the package. */
export const version: string = native.version();

if (!["", "0"].includes(process.env["FLOVYN_DEBUG"] ?? "")) install();
