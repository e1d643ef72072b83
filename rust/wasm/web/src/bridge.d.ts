/**
 * The bridge between the page and the core: what `../pkg/gabion_wasm.js` exports (wasm-bindgen,
 * `--target web`; its own `.d.ts` names the same functions) and the meaning of each record.
 *
 * Times are nanoseconds of true (virtual) time since the start, as numbers (exact up to 104 days).
 * Members, rules and keys are numbered from 0. Every text that a function throws is an `Error`
 * whose `message` is meant for people. The same run gives the same numbers everywhere.
 */

/** Loads the module; once, before anything else. */
export default function init(from: { module_or_path: string | URL | Response }): Promise<unknown>;

/** Columns of one frame in `Simulator.frames()`. */
export const enum Frame {
  SentNs = 0,
  /** When it arrives; when it is lost or cut: when it would have arrived, roughly. */
  ArriveNs = 1,
  From = 2,
  To = 3,
  Bytes = 4,
  /** Counter rows inside. 0: a heartbeat, greeting, acknowledgement or digest. */
  Rows = 5,
  /** `FrameKind` bits. */
  Kind = 6,
  /** `Fate`. */
  Fate = 7,
  COLUMNS = 8,
}
export const enum FrameKind {
  Rows = 1,
  Hello = 2,
  Ack = 4,
  Digest = 8,
  Other = 16,
}
/** Damaged: bits flipped on the way; the receiver drops it when frames are signed. */
export const enum Fate {
  Arrives = 0,
  Lost = 1,
  Cut = 2,
  Copy = 3,
  Damaged = 4,
}

/** Columns of one merge in `Simulator.merges()`: a frame that raised what its receiver knows. */
export const enum Merge {
  AtNs = 0,
  From = 1,
  To = 2,
  Rows = 3,
  COLUMNS = 4,
}

/** Columns of one line in `Simulator.verdicts()`: since the last call, only members with any. */
export const enum Verdicts {
  Member = 0,
  Rule = 1,
  Admitted = 2,
  Denied = 3,
  /** Admitted without being counted (fail open). */
  FailedOpen = 4,
  COLUMNS = 5,
}

/** Columns of one member in `Snapshot.members` (row by row). "Hits" are of the focused counter. */
export const enum Member {
  /** `State`. */
  State = 0,
  /** Hits that count now, as this member knows them (its table; its node where no row is). */
  Used = 1,
  /** Of which it admitted itself. */
  Own = 2,
  /** Hits that really count now, by the oracle and by this member's clock. */
  Truth = 3,
  /** Hits left, as it would tell a client. */
  Remaining = 4,
  /** The over-admission it states as possible right now, hits. */
  BoundHits = 5,
  /** How old what it knows may be, by its own statement. */
  StalenessNs = 6,
  /** Members that it does not reach, by its own statement. */
  Unreachable = 7,
  /** Peers it hears. */
  PeersUp = 8,
  /** Requests since the start, of the focused rule, all keys (also over restarts). */
  Admitted = 9,
  Denied = 10,
  FailedOpen = 11,
  FramesSent = 12,
  BytesSent = 13,
  FramesHeard = 14,
  BytesHeard = 15,
  /** Counter rows in its node. */
  RowsHeld = 16,
  /** Its cluster time minus true time: how wrong its clock is now. */
  ClockErrorNs = 17,
  /** The correction its node found. */
  ClockOffsetNs = 18,
  /** Rises with each restart. */
  Life = 19,
  COLUMNS = 20,
}
/** Down: killed, restarting or asleep. Slow: decides, but its driver stands still or comes late.
 *  Away: not joined yet, or left for good. */
export const enum State {
  Up = 0,
  Down = 1,
  Slow = 2,
  Away = 3,
}

/** Columns of `Snapshot.cluster`. Hits are of the focused counter. */
export const enum Cluster {
  NowNs = 0,
  /** Hits that really count now: the oracle, by true time. */
  Truth = 1,
  Limit = 2,
  /** max(0, Truth - Limit): over-admitted now. */
  Over = 3,
  /** Greatest of `Member.BoundHits` of members that are up: what the cluster states as possible. */
  BoundHits = 4,
  /** Greatest minus smallest `Member.Used` of members that are up: decays to 0. */
  Disagreement = 5,
  /** Most hits that some member that is up does not know of (truth - used). */
  Unknown = 6,
  /** Requests since the start, all rules. */
  Admitted = 7,
  Denied = 8,
  FailedOpen = 9,
  /** Frames and bytes sent since the start; of which lost by chance, stopped by a cut. */
  Frames = 10,
  Bytes = 11,
  Lost = 12,
  Cut = 13,
  /** Rows merged since the start. */
  Merged = 14,
  /** Frames that `frames()` could not keep since the start (it keeps 20,000 between calls). */
  FramesDropped = 15,
  /** Start of the epoch (fixed window or bucket) that is open now, and its length. */
  EpochStartNs = 16,
  EpochNs = 17,
  /** Things the simulator's own checkers objected to; must be 0. */
  Violations = 18,
  /** 1 while a fault is on (cut, loss, member down ..). */
  Troubled = 19,
  COLUMNS = 20,
}

/** A link as it is now: `from` to `to` carries nothing. */
export interface Cuts {
  cut: [from: number, to: number][];
}

/** A rule that was understood. */
export interface RuleInfo {
  name: string;
  /** In the words of the editor; gives the same rule again. Empty for rules of scenario files. */
  words: string;
  /** In plain words. */
  describe: string;
  limit: number;
  window_ns: number;
  /** Grain inside the window. */
  epoch_ns: number;
  pace: "fast" | "paced" | "strict";
  error_budget_ppm: number;
  /** What the cluster may be over at rest by this budget, hits. */
  bound_at_rest_hits: number;
  /** What an operator should know about it. */
  notices: string[];
}
/** One fault in a rule text, from the real parser. `line` and `column` count from 1. */
export interface RuleFault {
  line: number;
  column: number;
  key: string;
  message: string;
  suggestion: string | null;
}
export type RuleCheck = { ok: true; rules: RuleInfo[] } | { ok: false; faults: RuleFault[] };

/**
 * Reads rules. `text` is either one rule per line in words, `NAME rate=100/s window=10s burst=..
 * bucket=.. sliding=.. pace=fast|paced|strict error_budget=1% cardinality=..` (`#` begins a
 * comment), or a policy file (YAML that begins with `limits:`). Never throws for bad text. JSON of
 * `RuleCheck`. `members`: parts of `pace=strict` rules that name no `members=`.
 */
export function checkRules(text: string, members: number): string;

/** JSON of `PresetInfo[]`, in the order to show. */
export function presets(): string;
export interface PresetInfo {
  id: string;
  title: string;
  tells: string;
  members: number;
  end_ns: number;
}
/** The JSON text of a preset's run, for `new Simulator(..)`. */
export function presetRun(id: string): string;

/** A whole run as one JSON document: a permalink carries it, and `Simulator.run()` writes it. */
export interface Run {
  format: "gabion-run-1";
  /** A preset's id, title and a sentence for newcomers; free text otherwise. */
  id?: string;
  title?: string;
  tells?: string;
  /** Rule text, as `checkRules` reads it; left out when `scenario` has `rules` of its own. */
  rules?: string;
  /** From when on there is something to see: seek there before playing. Default 0. */
  start_ns?: number;
  /** Where the run ends, or where it was looked at. */
  end_ns: number;
  /** How fast to play: virtual seconds in one second. */
  speed?: number;
  /** Which counter to show. */
  focus?: { rule: number; key: number };
  /** Rules to show side by side (`clusterOf`); all members have all of them. */
  groups?: { title: string; rule: number }[];
  /** Of presets: what holds at `end_ns`. */
  ends?: Ends;
  /** Everything else, as docs/sim.md has it, without `rules`. Loads and faults that were commanded
   *  are in here with their times. */
  scenario: Scenario;
}
/** Of the focused counter and the cluster, at the end of a preset; also in native tests. */
export interface Ends {
  truth: number;
  over: number;
  disagreement: number;
  admitted: number;
  denied: number;
  frames: number;
  bytes: number;
  trace: string;
}
/** docs/sim.md, "Scenarios as JSON". Only what the page may want to write. */
export interface Scenario {
  seed: number;
  members: number;
  calm?: Partial<Network>;
  links?: { from: number; to: number; delay: Delay }[];
  clocks?: { wall_error_ns?: number; drift_ppm?: number }[];
  loads?: Load[];
  faults?: { at_ns: number; do: Fault }[];
  [more: string]: unknown;
}
export interface Network {
  delay_min_ns: number;
  delay_max_ns: number;
  loss_ppm: number;
  duplicate_ppm: number;
  late_ppm: number;
  late_max_ns: number;
}
export type Delay =
  | { constant: { ns: number } }
  | { uniform: { min_ns: number; max_ns: number } }
  | { exponential: { min_ns: number; mean_ns: number; most_ns: number } };
export interface Load {
  rule: number;
  keys: { one: number } | { uniform: number } | { zipf: number } | "fresh";
  target: "any" | { one: number } | { rotating: { stay_ns: number } };
  arrival:
    | { steady: { every_ns: number } }
    | { poisson: { mean_ns: number } }
    | { on_off: { every_ns: number; on_ns: number; off_ns: number } };
  hits: number;
  from_ns: number;
  until_ns: number;
}
export type Fault =
  | "heal"
  /** Every link from now on; what is left out is as in a calm local network (0.05 to 0.3 ms). */
  | { network: Partial<Network> }
  /** `side` and the others no longer reach each other (members 0 to 63). */
  | { partition: { side: number[] } }
  | { one_way: { from: number; to: number } }
  | { apart: { one: number; other: number } }
  /** Both ways carry again. */
  | { mend: { one: number; other: number } }
  | { restart: { member: number; down_ns: number; moves: boolean; wall_error_ns: number } }
  | { driver_stops: { member: number; for_ns: number } }
  | { sleep: { member: number; for_ns: number; clock_stops: boolean } }
  | { slow: { member: number; pause_ns: number; for_ns: number } }
  | { clock_step: { member: number; by_ns: number } }
  | { clog: { from: number; to: number; for_ns: number } }
  | { leave: { member: number } }
  | { join: { member: number } };

/** What can be done now. It is recorded with its virtual time: `run()` and `seek()` have it. */
export type Command =
  /** `hits` requests of one hit each, evenly spread over `over_ns` (default 20 ms). */
  | { burst: { member: number; hits: number; rule?: number; key?: number; over_ns?: number } }
  /** Requests at a rate, until stopped. `members`: at any (default) or at one. `keys`: that many,
   *  Zipf (default 1: one key). Answers `{"load": n}`. */
  | { load: { per_second: number; at?: number; rule?: number; keys?: number; steady?: boolean } }
  | { stop_load: { load: number } }
  | { stop_loads: Record<string, never> }
  /** Ends the process: rows lost. It stays away until `start`. */
  | { kill: { member: number } }
  | { start: { member: number } }
  /** All links: loss and delay, keeping the rest. */
  | {
      links: {
        loss_ppm?: number;
        delay_min_ns?: number;
        delay_max_ns?: number;
        duplicate_ppm?: number;
      };
    }
  | { fault: Fault };

export class Simulator {
  /** `json`: a `Run`, or a scenario file as `./tools/sim --export` writes it. Throws with what is
   *  wrong and where; nothing runs then. */
  constructor(json: string);
  free(): void;

  /** JSON of what this run is: `Info`. Constant but for `loads`. */
  info(): string;
  nowNs(): number;

  /** Lets virtual time pass: `by_ns`, but at most about `most_events` events (0: no bound; for a
   *  cluster that is too large for the display). Returns the time that was reached. */
  step(by_ns: number, most_events: number): number;
  /** One gossip round: until a frame with rows is sent and what is then under way has arrived; at
   *  most 1 s. Returns the time that was reached. */
  stepRound(): number;
  /** To any time, back or forth: runs again from the seed with what was recorded, in slices: call
   *  it until it returns `to_ns`. `most_events` as in `step`. What was recorded later stays, and
   *  happens again in its time. */
  seek(to_ns: number, most_events: number): number;
  /** Forgets what was recorded after now (before a new command in the past, when wanted). Runs the
   *  past again, at once. */
  forgetLater(): void;

  /** Does something now: it is done when this returns (the clock is then some nanoseconds on). JSON
   *  of `Command` in, JSON of `{at_ns, load?}` out. Throws when refused; nothing changed then. */
  command(json: string): string;

  /** What was sent since the last call, `Frame.COLUMNS` numbers each, in order of sending. */
  frames(): Float64Array;
  /** Since the last call, `Merge.COLUMNS` numbers each. */
  merges(): Float64Array;
  /** Since the last call, `Verdicts.COLUMNS` numbers each. */
  verdicts(): Float64Array;

  /** Which counter `members()` and `cluster()` show. */
  focus(rule: number, key: number): void;
  /** `Member.COLUMNS` numbers for each member. */
  members(): Float64Array;
  /** `Cluster.COLUMNS` numbers. */
  cluster(): Float64Array;
  /** The same for a rule, whatever the focus: for plots side by side. Key as focused. */
  clusterOf(rule: number): Float64Array;
  /** Pairs (from, to) of links that carry nothing now. */
  cuts(): Float64Array;
  /** JSON of `LinkInfo[]` of one member: what its node knows of each peer. */
  linksOf(member: number): string;

  /** JSON of `Run`: this run with everything recorded so far and `end_ns` = now. For permalinks. */
  run(): string;
  /** A scenario for `./tools/sim --replay FILE`; the same run, to now. */
  scenario(): string;
  /** JSON of `string[]`: what the simulator's own checkers objected to. */
  violations(): string;
  /** Digest of every datagram and verdict so far, hexadecimal: equal in native runs. */
  trace(): string;
}

export interface Info {
  id?: string;
  title?: string;
  tells?: string;
  seed: number;
  members: number;
  start_ns: number;
  end_ns: number;
  speed: number;
  focus: { rule: number; key: number };
  groups: { title: string; rule: number }[];
  ends?: Ends;
  rules: RuleInfo[];
  /** As it was written; empty when the run came from a scenario file. */
  rules_text: string;
  /** Recorded, in the order of time, for a list of what was done. */
  recorded: { at_ns: number; what: Fault | { load: Load } }[];
  /** Loads that still run. */
  loads: { load: number; what: Load }[];
}
export interface LinkInfo {
  to: number;
  up: boolean;
  hears_us: boolean;
  rtt_ns: number;
  silent_ns: number;
  staleness_ns: number;
  in_flight: number;
  backlog: number;
}
