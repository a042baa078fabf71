// Scripted models that end with the test that has started them.

import { fakeLlm, type FakeLlm } from "@flovyn/sdk/testing";
import { afterEach } from "vitest";

const fakes: FakeLlm[] = [];

afterEach(() => {
  for (const fake of fakes.splice(0)) fake.close();
});

/** A scripted model that ends with the test. */
export function model(...script: Parameters<typeof fakeLlm>): FakeLlm {
  const made = fakeLlm(...script);
  fakes.push(made);
  return made;
}
