// The same run in the module for browsers and natively: prints what examples/trace.rs prints, and
// compares it with the file of that, number by number (JSON writes 1.0 here and 1 there).
//
//     node tests/trace.mjs PKG NATIVE.jsonl
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { createReadStream } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const LOOKS = 20;
const HOUR_NS = 3_600e9;
const HOUR_MOST_MS = 10_000;

const [folder, native] = process.argv.slice(2).map((path) => resolve(path));
const bridge = await import(pathToFileURL(join(folder, "gabion_wasm.js")));
const module = readFileSync(join(folder, "gabion_wasm_bg.wasm"));
await bridge.default({ module_or_path: module });

function* lines() {
  for (const { id, end_ns } of JSON.parse(bridge.presets())) {
    const simulator = new bridge.Simulator(bridge.presetRun(id));
    for (let look = 1; look <= LOOKS; look += 1) {
      simulator.seek(Math.floor(end_ns / LOOKS) * look, 0);
      yield {
        id,
        cluster: [...simulator.cluster()],
        members: [...simulator.members()],
        verdicts: [...simulator.verdicts()],
        merges: simulator.merges().length,
        frames: [...simulator.frames()],
        trace: simulator.trace(),
      };
    }
    simulator.free();
  }
}

const here = lines();
let looks = 0;
for await (const line of createInterface({ input: createReadStream(native) })) {
  const { value, done } = here.next();
  assert(!done, "the native run has more looks");
  assert.deepEqual(value, JSON.parse(line), `look ${looks} of ${value.id}`);
  looks += 1;
}
assert(here.next().done, "the native run has fewer looks");
assert(looks > 0, "nothing was compared");
console.log(`${looks} looks at ${looks / LOOKS} presets: the same numbers and traces`);

// An hour of virtual time, headless.
const hour = new bridge.Simulator(JSON.stringify({
  format: "gabion-run-1",
  rules: "api rate=600/m",
  end_ns: HOUR_NS,
  scenario: { seed: 1, members: 5, calm: { delay_min_ns: 20e6, delay_max_ns: 50e6 } },
}));
hour.command(JSON.stringify({ load: { per_second: 20 } }));
const started = performance.now();
assert.equal(hour.seek(HOUR_NS, 0), HOUR_NS);
const took_ms = performance.now() - started;
const frames = hour.cluster()[10];
console.log(`an hour of virtual time: ${Math.round(took_ms)} ms, ${frames} frames`);
assert.equal(hour.violations(), "[]");
assert(took_ms <= HOUR_MOST_MS, `it may take ${HOUR_MOST_MS} ms`);

// What one frame of a page costs here, at 64 members and 1,000 requests in a second.
const large = new bridge.Simulator(bridge.presetRun("members-64"));
large.seek(1e9, 0);
const costs_ms = [];
for (let frame = 0; frame < 480; frame += 1) {
  const from_ms = performance.now();
  large.step(1e9 / 60, 0);
  large.frames();
  large.verdicts();
  large.members();
  large.cluster();
  costs_ms.push(performance.now() - from_ms);
}
costs_ms.sort((one, other) => one - other);
const at = (share) => costs_ms[Math.floor(costs_ms.length * share)].toFixed(1);
console.log(`64 members, 1/60 s in real time: p50 ${at(0.5)} ms, p95 ${at(0.95)} ms`);
