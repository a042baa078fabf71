// Tools for testing agents: crashes at every commit, a virtual clock, recorded cassettes, a scripted model.
//
// `check(agent, input)` proves that an agent survives: it runs it undisturbed, then with forced re-entry, then with a
// crash at every commit, and compares. `harness` serves agents in memory on a clock that the test moves. `fakeLlm` is a
// scripted model server for agents that ask models.

export { Cassette, CassetteMiss, record, replay } from "./cassette.js";
export { check, type CheckOptions, Difference, type Report } from "./check.js";
export {
  cut,
  FakeLlm,
  fakeLlm,
  type FakeLlmOptions,
  type Fault,
  malformed,
  type Pace,
  type RecordedCall,
  type ScriptedCall,
  stall,
  status,
  toolCall,
  type Turn,
  turn,
  type When,
} from "./scripted.js";
export { type Fakes, Harness, harness, type HarnessOptions } from "./harness.js";
