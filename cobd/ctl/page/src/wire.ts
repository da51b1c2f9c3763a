// The types of the interface between the server of `cobctl page` and this program.

/** The class of an object: an index into `CLASSES`. */
export type Class = number;

export interface Cluster {
  verdict: "converged" | "not" | "unreached";
  sentence: string;
  reasons: string[];
  next?: string;
  generation?: number;
  newest?: number;
  now_ms?: number;
  depot: boolean;
}

export type HostMark = "good" | "busy" | "bad" | "unknown";

export interface Host {
  name: string;
  reachable: boolean;
  error?: string;
  generation?: number;
  switching_to?: number;
  converged: boolean;
  paused: boolean;
  held?: number;
  words: string;
  mark: HostMark;
  peers_down?: string[];
  counts: number[];
  listen?: string;
  switch?: { to: number; stage: string; why?: string; left?: number };
  waits_for_window?: string;
}

export interface Columns {
  id: string[];
  kinds: string[];
  kind: number[];
  states: string[];
  state: number[];
  target: number[];
  class: number[];
  flags: number[];
  since_ms: number[];
  waits: { [index: string]: number[] };
}

export type Row = [
  index: number,
  state: number,
  target: number,
  cls: number,
  flags: number,
  since_ms: number,
  waits: number[],
];

/** The area of a host in the drawing. */
export interface Band {
  host: string;
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Graph {
  generation?: number;
  needs: number[];
  x: number[];
  y: number[];
  bands: Band[];
  missing?: string;
}

export interface OrderState {
  id: number;
  words: string;
  began_ms: number;
  ended_ms?: number;
  exit?: number;
  output: string;
}

export interface Snapshot {
  kind: "snapshot";
  seq: number;
  cluster: Cluster;
  hosts: Host[];
  cobs: Columns;
  graph: Graph;
  orders: OrderState[];
}

export interface Delta {
  kind: "delta";
  seq: number;
  cluster?: Cluster;
  hosts?: Host[];
  /** Names of states that follow the known names: the rows of this message may use them. */
  states?: string[];
  cobs?: Row[];
  orders?: OrderState[];
}

export interface Idle {
  kind: "idle";
  seq: number;
  now_ms: number;
}

export type Message = Snapshot | Delta | Idle;

export interface Answer<T> {
  exit: number;
  answer: T | null;
  problems: string[];
  failure?: { error: string; causes: string[]; hints: string[] };
}

export interface Cause {
  cob: string;
  cause: string;
  text: string;
  hint: string;
}

export interface ExplainedCob {
  id: string;
  state: string | null;
  target: string | null;
  generation: number | null;
  waits: { cob: string; text: string; for_ns: number }[];
  causes: Cause[];
}

export interface Explained {
  cob: string;
  answer: string;
  first_cause: Cause;
  chain: string[];
  cobs: ExplainedCob[];
  cut: boolean;
}

/** The answer of `explain` about a host. */
export interface ExplainedHost {
  host: string;
  answer: string;
  generation: number | null;
  switching_to: number | null;
  /** Why its objects wait. */
  waits: Explained[];
}

/** The answer of `whoami`. */
export interface Whoami {
  hosts: { host: string; reachable: boolean; name?: string; role?: string; proof?: string }[];
}

export interface HistoryEntry {
  ts_ns: number;
  host: string;
  seq: number;
  lamport: number;
  generation?: number;
  cob?: string;
  event: string;
  from?: string;
  to?: string;
  attempt?: number;
  ok: boolean | null;
  detail?: string;
  heard_ns?: number;
  facts?: { generation?: number; by?: string; other?: string; ordered?: boolean; everywhere?: boolean };
}

export interface ReplayEntry extends HistoryEntry {
  offset_ns: number;
  waited?: { of: string; ns: number }[];
}

export type Ended = "converged" | "called-off" | "superseded" | "cancelled" | "rolled-back" | "under-way" | "failed";

/** A switch on all hosts that reported it. */
export interface Outcome {
  to: number;
  by: string;
  began_ns: number;
  ended_ns?: number | null;
  ended: Ended;
  hosts: { [host: string]: HostOutcome };
  /** Participating hosts without a report. */
  silent?: string[];
}

export interface HostOutcome {
  from: number | null;
  to: number;
  by: string;
  began_ns: number;
  activated_ns?: number | null;
  ended_ns?: number | null;
  ended: Ended;
  /** The objects with transitions or failures. */
  cobs?: { [id: string]: { moves: number; failures: number; failed: boolean } };
}

export interface PlanTransition {
  id: number;
  cob: string;
  from: string;
  to: string;
  begin_us: number;
  end_us: number;
  cause?: number;
  lag_us: number;
  slack_us: number;
  stage: number;
  known: boolean;
  irreversible?: boolean;
  why: Why;
  duration: { min: number; median: number; p90: number };
}

export interface Why {
  because: string;
  on?: string[];
  moves?: { transition: number; cob: string; states: string[] }[];
}

export interface ChangedCob {
  content?: { path: string; from?: unknown; to?: unknown; lines?: string }[];
  kind_changed: boolean;
  outdated: boolean;
  rests_on_changed: boolean;
  preferred?: { from: string; to: string };
}

/** The differences between two generations. */
export interface Changes {
  from: number;
  to: number;
  added: { [id: string]: unknown };
  removed: { [id: string]: unknown };
  changed: { [id: string]: ChangedCob };
  hosts_added: string[];
  hosts_removed: string[];
  hosts_moved: { [host: string]: unknown };
  kinds_changed: string[];
}

export interface Plan {
  from: number;
  to: number;
  changes: Changes;
  critical_path: number[];
  transitions: PlanTransition[];
  interrupted: { cob: string; begin_us: number; end_us?: number; in_place: boolean; to?: string; why: Why }[];
  irreversible: { transition: number; marked: boolean; latest_us: number }[];
  point_of_no_return?: { transition: number; at_us: number; latest_us: number; before: number; behind: number };
  forecast: {
    end_us: number;
    p50_us: number;
    p90_us: number;
    runs: number;
    known: number;
    converges: boolean;
    stuck?: { [id: string]: string[] };
  };
}

/** A line about the trial of a switch's faults. */
export type FaultTold =
  | { kind: "progress"; step: number; steps: number; cases: number; runs: number }
  | ({ kind: "report" } & FaultReport)
  | { kind: "refused"; error: string; causes: string[]; hints: string[] };

export interface FaultReport {
  from: number;
  to: number;
  is_well: boolean;
  summary: string;
  /** The cases beyond the limit, in a line. */
  skipped?: string;
  runs: number;
  command: string;
  groups: FaultGroup[];
  left_off: number;
}

export interface FaultGroup {
  end: "converges" | "rolls-back" | "needs-person" | "crowds" | "stuck" | "breaks-rule";
  words: string;
  cases: number;
  findings: { title: string; cases: number; why: string[]; again?: string; also: string[] }[];
}

export interface GenerationEntry {
  generation: number;
  /** Seconds since 1970. */
  time?: number;
  author?: string;
  message?: string;
  counts?: { hosts: number; cobs: number };
}

/** A change object as `/v1/status` gives it. */
export interface CobDocument {
  id: string;
  kind: string;
  state: string | null;
  target: string | null;
  preferred: string;
  phase: string;
  since_ns: number;
  failed: boolean;
  retiring?: boolean;
  observed?: boolean;
  stopped?: { who?: string; restart?: boolean; until_boot?: boolean; with?: string };
  waits_for: { reason: string; cob?: string; states?: string[]; [other: string]: unknown }[];
  action?: {
    from?: string;
    to?: string;
    attempt: number;
    of: number;
    running: boolean;
    since_ns: number;
    error?: string;
    last_line?: string;
  };
  trouble?: { [kind: string]: unknown };
  held_by?: { cob: string; state: string; recalled: boolean; since_ns: number }[];
  drift?: { path: string; changed_s?: number; owner?: string; logged_in?: string[] }[];
}

export interface DiffDocument {
  text?: string;
  path?: string;
  state?: string;
  conflicts?: { path: string; what?: string; hunks?: string }[];
  [other: string]: unknown;
}
