// The answers of the hub's API; docs/hub-openapi.json describes them.

export interface UserId {
  tenant?: string;
  name: string;
}

export interface Whoami {
  user: string;
  tenant: string | null;
  standing: "super-administrator" | "administrator" | "user";
}

export interface Wanted {
  template: string;
  nodes: number;
  services?: string[];
  provider?: string;
  hardwaretype?: string;
  imagetype?: string;
  config?: Record<string, unknown>;
}

export type ClusterState = "pending" | "active" | "incomplete" | "inconsistent" | "terminated";
export type MachineState = "requested" | "created" | "confirmed" | "deleting" | "orphan";

export interface Machine {
  host: string;
  tenant?: string;
  cluster: string | null;
  provider: string;
  id?: string;
  address?: string;
  state: MachineState;
}

export interface Cluster {
  tenant: string;
  name: string;
  owner: string;
  wanted: Wanted;
  catalogue: string;
  state: ClusterState;
  generation?: number;
  created_ms: number;
  lease_ends_ms?: number;
  job?: number;
  machines: Machine[];
}

export type Operation =
  | { operation: "create" }
  | { operation: "resize"; nodes: number }
  | { operation: "services"; add: string[]; remove: string[] }
  | { operation: "configure"; config: Record<string, unknown> }
  | { operation: "start" | "stop" | "restart"; services: string[] }
  | { operation: "sync" | "rollback" | "delete" }
  | { operation: "replace"; node: string };

export interface PreviewTask {
  id: number;
  node: string;
  action: string;
  service?: string;
}

export interface Preview {
  nodes: { name: string; services: string[]; hardwaretype: string | null; imagetype: string | null }[];
  create: string[];
  delete: string[];
  tasks: PreviewTask[];
  stages: number[][];
  base?: string;
}

export type JobState = "queued" | "waiting" | "starting" | "running" | "canceling" | "succeeded" | "failed" | "canceled";

export interface Job {
  id: number;
  tenant: string;
  cluster: string;
  operation: Operation;
  user: string;
  /** -20 (the most important) to 19. */
  priority: number;
  state: JobState;
  reason?: string;
  hint?: string;
  step?: string;
  steps_done: number;
  steps: number;
  submitted_ms: number;
  started_ms?: number;
  ended_ms?: number;
}

export const OPERATIONS: readonly Operation["operation"][] = ["create", "resize", "services", "configure", "start", "stop", "restart", "sync", "rollback", "replace", "delete"];

export interface Queue {
  drain?: { reason: string; by: string; since_ms: number };
  running: number;
  waiting: number;
  /** In their order. */
  rules: Rule[];
}

export interface Rule {
  name: string;
  /** Absent: a rule of the hub. */
  tenant?: string;
  content: RuleContent;
}

export interface RuleContent {
  action: RuleAction;
  priority: number;
  reason: string;
  jobs: JobSelection;
}

export type RuleAction = "accept" | "pause" | "reject" | "continue" | { "rate-limit": number };

/** A job has to match each list; an absent list matches each job. */
export interface JobSelection {
  ids?: number[];
  tenants?: string[];
  users?: string[];
  clusters?: string[];
  operations?: string[];
  providers?: string[];
  new_only?: boolean;
}

export interface LogPart {
  text: string;
  next: number;
  complete: boolean;
}

export const SECTIONS = ["templates", "services", "providers", "hardwaretypes", "imagetypes"] as const;
export type SectionName = (typeof SECTIONS)[number];

export interface Entity {
  kind: SectionName;
  name: string;
  version: string;
  author: string;
  written_ms: number;
  definition: unknown;
}

export interface Fault {
  place?: string;
  message: string;
  help?: string[];
}

/** The answer to an export or import. */
export interface Exchanged {
  /** What the form can't express. */
  lost?: Fault[];
}

export interface Quota {
  machines?: number;
  clusters?: number;
  parallel_jobs?: number;
}

export interface UsageOf {
  used: { machines: number; clusters: number };
  quota: Quota;
}

export interface Usages {
  tenant: UsageOf;
  own?: UsageOf;
}

export interface Grant {
  actions: string[];
  on: { kind: string; names: "all" | { listed: string[] }; shared: boolean };
}

export interface Tenant {
  quota: Quota;
  per_user: Quota;
  users: Record<string, { administrator: boolean; groups: string[]; quota?: Quota; grants: Record<string, Grant> }>;
  groups: Record<string, { grants: Record<string, Grant> }>;
}

export interface Directory {
  super_administrators: string[];
  tenants: Record<string, Tenant>;
}

export interface TokenInfo {
  id: string;
  user: UserId;
  label: string;
  made_ms: number;
  ends_ms?: number;
}

export interface AuditLine {
  number: number;
  time_ms: number;
  tenant?: string;
  user: string;
  request: string;
  cluster?: string;
  job?: number;
  decision: string;
}
