// I own: the simulator, beside the page's thread, so that a large cluster never stops the page. I
// answer one message at a time and never work longer than a few tens of milliseconds on one.

import init, { checkRules, presetRun, presets, Simulator } from '../pkg/gabion_wasm.js';
import wasm from '../pkg/gabion_wasm_bg.wasm?url';
import type { Command, Info } from './bridge';
import { C, F, V } from './columns';
import type { FromWorker, Group, Question, Sample, Tick, ToWorker } from './protocol';
import { sampleOf, thin } from './sampling';

/** Events in one slice: some milliseconds of work. */
const SLICE_EVENTS = 1500;
/** Work on one message ends after this long, milliseconds. */
const BUDGET_MS = 24;
/** The same on a long way, where nothing is drawn. */
const BUSY_BUDGET_MS = 60;
/** Above so many members numbers are read less often while time runs: they cost milliseconds. */
const MANY = 16;
/** So much less often, milliseconds. */
const READ_MS = 60;
/** Frames that one tick hands to the page at most; the rest is left out evenly. */
const FLIGHTS = 200;

let simulator: Simulator | null = null;
let info: Info | null = null;
let groups: Group[] = [];
let run = 0;
let every = 1e6;
let nextSample = 0;
/** Where a seek is heading, or -1. */
let goal = -1;
/** When numbers were last read. */
let readAt = 0;

const send = (message: FromWorker, transfer: Transferable[] = []) =>
  postMessage(message, { transfer });

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function open(json: string, at: number): void {
  try {
    const next = new Simulator(json);
    simulator?.free();
    simulator = next;
  } catch (error) {
    send({ kind: 'refused', run, message: messageOf(error) });
    return;
  }
  info = JSON.parse(simulator.info()) as Info;
  groups = info.groups.length > 0 ? info.groups : [{ title: '', rule: info.focus.rule }];
  nextSample = 0;
  const start = at > 0 ? at : info.start_ns;
  goal = start > 0 ? start : -1;
  send({ kind: 'opened', run, info });
  if (goal < 0) report([], false);
  else seekOn();
}

/** Lets time pass up to `until`, taking samples on the way, for as long as the budget lasts. */
function pass(sim: Simulator, until: number, budget: number): Sample[] {
  const samples: Sample[] = [];
  const end = performance.now() + budget;
  while (sim.nowNs() < until && performance.now() < end) {
    const stop = Math.min(until, Math.max(nextSample, sim.nowNs()));
    if (sim.nowNs() < stop) sim.step(stop - sim.nowNs(), SLICE_EVENTS);
    if (sim.nowNs() >= nextSample) {
      samples.push(sample(sim));
      nextSample = sim.nowNs() + every;
    }
  }
  return samples;
}

function sample(sim: Simulator): Sample {
  return sampleOf(sim.nowNs(), members(sim)[0] ?? new Float64Array(0), clusters(sim), groups);
}

/** All members, once for each group. */
function members(sim: Simulator): Float64Array[] {
  if (groups.length <= 1 || !info) return [sim.members()];
  const all = groups.map((group) => {
    sim.focus(group.rule, info?.focus.key ?? 0);
    return sim.members();
  });
  sim.focus(groups[0]?.rule ?? 0, info.focus.key);
  return all;
}

function clusters(sim: Simulator): Float64Array {
  const all = new Float64Array(groups.length * C.stride);
  groups.forEach((group, i) => {
    all.set(groups.length > 1 ? sim.clusterOf(group.rule) : sim.cluster(), i * C.stride);
  });
  return all;
}

function report(samples: Sample[], busy: boolean, running = false): void {
  if (!simulator || !info) return;
  const read = !running || info.members <= MANY || performance.now() - readAt >= READ_MS;
  if (read) readAt = performance.now();
  const flights = thin(simulator.frames(), F.stride, FLIGHTS);
  const tick: Tick = {
    kind: 'tick',
    run,
    now: simulator.nowNs(),
    busy,
    members: read ? members(simulator) : [],
    clusters: read ? clusters(simulator) : new Float64Array(0),
    flights,
    pulses: pulses(simulator.verdicts(), info.members),
    cuts: simulator.cuts(),
    samples,
    violations: [],
  };
  simulator.merges();
  if ((tick.clusters[C.violations] ?? 0) > 0) {
    tick.violations = JSON.parse(simulator.violations()) as string[];
  }
  const lists = [...tick.members, ...tick.pulses, tick.clusters, flights];
  send(
    tick,
    lists.map((list) => list.buffer),
  );
}

function pulses(verdicts: Float64Array, count: number): Uint32Array[] {
  const all = groups.map(() => new Uint32Array(2 * count));
  for (let i = 0; i < verdicts.length; i += V.stride) {
    const counts = all[groups.findIndex((group) => group.rule === verdicts[i + V.rule])];
    if (!counts) continue;
    const at = 2 * (verdicts[i + V.member] ?? 0);
    const passed = (verdicts[i + V.admitted] ?? 0) + (verdicts[i + V.failedOpen] ?? 0);
    counts[at] = (counts[at] ?? 0) + passed;
    counts[at + 1] = (counts[at + 1] ?? 0) + (verdicts[i + V.denied] ?? 0);
  }
  return all;
}

/** Goes on with a seek, a slice at a time, so that a newer message can overtake it. */
function seekOn(): void {
  const sim = simulator;
  if (!sim || goal < 0) return;
  const mine = run;
  const to = goal;
  if (to < sim.nowNs()) {
    sim.seek(0, 0);
    nextSample = 0;
  }
  const samples = pass(sim, to, BUSY_BUDGET_MS);
  const there = sim.nowNs() === to;
  if (there) goal = -1;
  report(samples, !there);
  if (!there) setTimeout(() => mine === run && goal === to && seekOn(), 0);
}

/** Lets time pass; a time that is not later asks for the numbers as they are now. */
function advance(sim: Simulator, until: number): void {
  const running = until > sim.nowNs();
  report(pass(sim, until, BUDGET_MS), false, running);
}

function command(deed: Command): void {
  if (!simulator) return;
  goal = -1;
  const now = simulator.nowNs();
  let message = '';
  try {
    // What was done later, before a step back, stays on the programme, as what the scene does.
    simulator.command(JSON.stringify(deed));
    nextSample = Math.min(nextSample, now + every);
  } catch (error) {
    message = messageOf(error);
  }
  send({ kind: 'done', run, command: deed, at: now, message });
  report([], false);
}

function answer(question: Question): string {
  if (question.what === 'rules') return checkRules(question.text, question.members);
  if (question.what === 'preset') return presetRun(question.name);
  if (!simulator) throw new Error('nothing runs');
  if (question.what === 'run') return simulator.run();
  if (question.what === 'scenario') return simulator.scenario();
  return simulator.trace();
}

function ask(id: number, question: Question): void {
  try {
    send({ kind: 'answer', id, value: answer(question), failed: false });
  } catch (error) {
    send({ kind: 'answer', id, value: messageOf(error), failed: true });
  }
}

function inRun(message: ToWorker & { run: number }, sim: Simulator): void {
  switch (message.kind) {
    case 'advance':
      if (goal < 0) advance(sim, message.until);
      break;
    case 'seek':
      goal = message.to;
      seekOn();
      break;
    case 'round':
      goal = -1;
      sim.stepRound();
      nextSample = sim.nowNs();
      report([sample(sim)], false);
      break;
    case 'command':
      command(message.command);
      break;
    case 'focus':
      if (info) info.focus.rule = message.rule;
      if (groups.length === 1 && groups[0]) groups[0].rule = message.rule;
      sim.focus(message.rule, info?.focus.key ?? 0);
      report([], false);
      break;
    case 'links': {
      const links = JSON.parse(sim.linksOf(message.member)) as [];
      send({ kind: 'links', run, member: message.member, links });
      break;
    }
    case 'open':
      break;
  }
}

onmessage = (event: MessageEvent<ToWorker>) => {
  const message = event.data;
  if (message.kind === 'open') {
    run = message.run;
    open(message.json, message.at);
  } else if (message.kind === 'sampling') {
    every = message.every;
  } else if (message.kind === 'ask') {
    ask(message.id, message.question);
  } else if (simulator && message.run === run) {
    inRun(message, simulator);
  }
};

init({ module_or_path: wasm }).then(
  () => send({ kind: 'ready', presets: presets() }),
  (error: unknown) => send({ kind: 'refused', run: 0, message: messageOf(error) }),
);
