// Texts of operations, plans and states. Pure, without the browser.
import type { ClusterState, JobState, MachineState, Operation, Preview, Quota, UserId, Whoami } from "./wire";
import { count } from "../words";

/** The class of a state: its colour and shape. */
export const CLASS_OF: Record<ClusterState | JobState | MachineState, number> = {
  active: 0,
  succeeded: 0,
  confirmed: 0,
  pending: 1,
  starting: 1,
  running: 1,
  created: 1,
  canceling: 1,
  deleting: 1,
  queued: 2,
  waiting: 2,
  requested: 2,
  failed: 3,
  inconsistent: 3,
  incomplete: 3,
  orphan: 3,
  canceled: 4,
  terminated: 4,
};

export const isOver = (state: JobState) => state === "succeeded" || state === "failed" || state === "canceled";

/** `a`, `a and b`, `a, b and c`, `a, b, c and 4 more`. */
export function list(names: readonly string[], most = 6): string {
  if (names.length > most) return `${names.slice(0, most - 1).join(", ")} and ${names.length - most + 1} more`;
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

/** An operation in a few words. */
export function operationWords(operation: Operation): string {
  switch (operation.operation) {
    case "resize":
      return `resize to ${count(operation.nodes, "node")}`;
    case "services": {
      const parts = [operation.add.length > 0 && `add ${list(operation.add)}`, operation.remove.length > 0 && `remove ${list(operation.remove)}`];
      return parts.filter(Boolean).join(", ") || "services";
    }
    case "start":
    case "stop":
    case "restart":
      return `${operation.operation} ${operation.services.length > 0 ? list(operation.services) : "all services"}`;
    case "replace":
      return `replace ${operation.node}`;
    default:
      return operation.operation;
  }
}

/** What an operation takes away, as `cobctl cluster` says it; then a person types the name of the cluster. */
export function lossOf(operation: Operation, nodes: number, plan: Preview): string {
  switch (operation.operation) {
    case "delete":
      return "It stops all services and deletes all machines.";
    case "replace":
      return "It deletes the machine of the node.";
    case "rollback":
      return "It may interrupt services and delete machines.";
    case "stop":
      return "It stops services.";
    case "configure":
    case "sync":
    case "restart":
      return "It may interrupt services.";
    case "services":
      return operation.remove.length > 0 ? "It removes services." : "";
    case "resize":
      return operation.nodes < nodes || plan.delete.length > 0 ? "It deletes machines." : "";
    default:
      return plan.delete.length > 0 ? "It deletes machines." : "";
  }
}

/** The stages of a plan, each in a line: `start web on shop-1 and shop-2`. */
export function stageLines(plan: Preview): string[] {
  const tasks = new Map(plan.tasks.map((task) => [task.id, task]));
  return plan.stages.map((stage) => {
    const nodes = new Map<string, string[]>();
    for (const id of stage) {
      const task = tasks.get(id);
      if (!task) continue;
      const what = task.service ? `${task.action} ${task.service}` : task.action;
      nodes.set(what, [...(nodes.get(what) ?? []), task.node]);
    }
    return [...nodes].map(([what, on]) => `${what} on ${list(on)}`).join("; ");
  });
}

/** What a plan does with machines. */
export function machineLine(plan: Preview): string {
  const parts = [
    plan.create.length > 0 && `creates ${count(plan.create.length, "machine")}: ${list(plan.create)}`,
    plan.delete.length > 0 && `deletes ${count(plan.delete.length, "machine")}: ${list(plan.delete)}`,
  ].filter(Boolean);
  return parts.length > 0 ? `The plan ${parts.join(", and ")}.` : "The plan creates and deletes no machines.";
}

/** `web/ann`, or `root` for a super administrator. */
export function userWords(user: UserId): string {
  return user.tenant ? `${user.tenant}/${user.name}` : user.name;
}

/** The same for the caller. */
export function ownWords({ tenant, user }: Whoami): string {
  return userWords(tenant === null ? { name: user } : { tenant, name: user });
}

/** The user of a log-in: `TENANT/USER`, or `USER` for a super administrator. */
export function userOf(text: string): UserId {
  const [first = "", ...rest] = text.trim().split("/");
  return rest.length > 0 ? { tenant: first, name: rest.join("/") } : { name: first };
}

/** `3 of 6`, or `3` without a limit. */
export function ofQuota(used: number, most: number | undefined): string {
  return most === undefined ? String(used) : `${used} of ${most}`;
}

export function quotaWords(quota: Quota): string {
  const parts = [
    quota.machines !== undefined && count(quota.machines, "machine"),
    quota.clusters !== undefined && count(quota.clusters, "cluster"),
    quota.parallel_jobs !== undefined && `${count(quota.parallel_jobs, "job")} at a time`,
  ].filter(Boolean);
  return parts.length > 0 ? `at most ${parts.join(", ")}` : "no limits";
}

/** Seconds of `90s`, `36h`, `7d`; `null`: not a duration. */
export function secondsOf(text: string): number | null {
  const found = /^(\d{1,7})\s*(s|min|h|d|w)$/.exec(text.trim());
  if (!found) return null;
  const unit: Record<string, number> = { s: 1, min: 60, h: 3600, d: 86_400, w: 604_800 };
  return Number(found[1]) * unit[found[2]!]!;
}

/** Seconds as a duration that `secondsOf` reads. */
export function durationOf(seconds: number): string {
  const [unit, length] = ([["d", 86_400], ["h", 3600], ["min", 60]] as const).find(([, length]) => seconds % length === 0) ?? ["s", 1];
  return `${seconds / length}${unit}`;
}

/** The object of a text in JSON; `null`: the text is no object. */
export function objectOf(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}
