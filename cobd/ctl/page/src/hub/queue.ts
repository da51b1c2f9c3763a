// Filters of jobs as parameters of the address, and the queue in words. Pure, without the browser.
import { list } from "./texts";
import { OPERATIONS, type JobSelection, type JobState, type Operation, type Queue, type Rule, type RuleAction, type RuleContent, type Whoami } from "./wire";

/** The jobs of a page. */
export const PAGE = 50;

export const JOB_STATES: readonly JobState[] = ["queued", "waiting", "starting", "running", "canceling", "succeeded", "failed", "canceled"];
export const SINCE = { "1h": ["the last hour", 3_600_000], "1d": ["the last day", 86_400_000], "7d": ["the last week", 604_800_000] } as const;

export interface JobFilter {
  /** `open`: each job that has not ended. */
  state: "" | "open" | JobState;
  cluster: string;
  /** `TENANT/USER`, or a super administrator. */
  user: string;
  operation: "" | Operation["operation"];
  since: "" | keyof typeof SINCE;
  /** The numbers before which the pages after the first one begin, up to the page that is shown. */
  pages: number[];
}

/** The filter of an address. A value that no filter has counts as absent. */
export function filterOf(params: URLSearchParams): JobFilter {
  const text = (name: string) => (params.get(name) ?? "").trim();
  const [state, since] = [text("state"), text("since")];
  const pages = text("before").split(",").map(Number);
  const falls = pages.every((before, at) => Number.isSafeInteger(before) && before > 0 && (at === 0 || before < pages[at - 1]!));
  return {
    state: state === "open" || (JOB_STATES as readonly string[]).includes(state) ? (state as JobFilter["state"]) : "",
    cluster: text("cluster"),
    user: text("user"),
    operation: (OPERATIONS as readonly string[]).includes(text("operation")) ? (text("operation") as JobFilter["operation"]) : "",
    since: Object.hasOwn(SINCE, since) ? (since as JobFilter["since"]) : "",
    pages: falls ? pages : [],
  };
}

/** The parameters of the address; the first page without filters has none. */
export function paramsOf({ pages, ...filter }: JobFilter): Record<string, string> {
  const all = { ...filter, before: pages.join(",") };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== ""));
}

/** The query of the API. It asks for a job more than a page has: then there is an older page. */
export function queryOf(filter: JobFilter, now: number): Record<string, string> {
  const before = filter.pages.at(-1);
  return {
    ...(filter.state === "open" ? { open: "true" } : filter.state ? { state: filter.state } : {}),
    ...(filter.cluster ? { cluster: filter.cluster } : {}),
    ...(filter.user ? { user: filter.user } : {}),
    ...(filter.operation ? { operation: filter.operation } : {}),
    ...(filter.since ? { since_ms: String(Math.max(0, now - SINCE[filter.since][1])) } : {}),
    ...(before === undefined ? {} : { before: String(before) }),
    limit: String(PAGE + 1),
  };
}

/** Whether a job has not started: its priority can change. */
export const isPending = (state: JobState) => state === "queued" || state === "waiting";

/** The most important priority that a caller may give. */
export const bestPriority = (standing: Whoami["standing"]) => ({ "super-administrator": -20, administrator: -10, user: 0 })[standing];

/** The number of a text; `null`: the text is no whole number between the bounds. */
export function numberOf(text: string, least: number, most: number): number | null {
  const number = /^-?\d{1,10}$/.test(text.trim()) ? Number(text) : NaN;
  return number >= least && number <= most ? number : null;
}

/** A text in parts: each `job N` is a number. */
export function jobParts(text: string): (string | number)[] {
  return text
    .split(/\bjob (\d{1,15})\b/)
    .map((part, at) => (at % 2 === 1 ? Number(part) : part))
    .filter((part) => part !== "");
}

export function actionWords(action: RuleAction): string {
  if (typeof action === "object") return `run at most ${action["rate-limit"]} of`;
  return action === "continue" ? "off:" : action;
}

/** The jobs that a rule concerns, in the words of `cobctl hub queue`. */
export function selectionWords(jobs: JobSelection): string {
  const named = (words: string, names: readonly (string | number)[] = []) => (names.length > 0 ? ` ${words} ${list(names.map(String), 12)}` : "");
  const conditions = [
    named("with the number", jobs.ids),
    named("of the tenant", jobs.tenants),
    named("of the user", jobs.users),
    named("of the cluster", jobs.clusters),
    named("for the operation", jobs.operations),
    named("on the provider", jobs.providers),
    jobs.new_only ? " ordered later" : "",
  ].join("");
  return conditions ? `jobs${conditions}` : "all jobs";
}

/** `freeze` of the hub, `web/freeze` of a tenant. */
export const ruleId = (rule: Rule) => (rule.tenant ? `${rule.tenant}/${rule.name}` : rule.name);

const selectsAll = (jobs: JobSelection) => selectionWords(jobs) === "all jobs";

/** Whether a selection takes all jobs, at least of some tenants, or from now on. */
const isBroad = ({ tenants: _, new_only: __, ...rest }: JobSelection) => selectsAll(rest);

/** A sentence for each rule that pauses or rejects all jobs: the first rule that matches a job applies to it. */
export function stops(rules: Queue["rules"]): string[] {
  const sentences: string[] = [];
  for (const keeper of new Set(rules.map((rule) => rule.tenant))) {
    let exceptions = false;
    for (const rule of rules.filter((rule) => rule.tenant === keeper && rule.content.action !== "continue")) {
      const { action, jobs, reason } = rule.content;
      const isStop = action === "pause" || action === "reject";
      if (isStop && isBroad(jobs)) {
        const which = `${selectionWords(jobs).replace(/^jobs/, "all jobs")}${keeper ? ` of the tenant ${keeper}` : ""}`;
        const but = exceptions ? ", except jobs that an earlier rule accepts" : "";
        sentences.push(`The rule ${ruleId(rule)} ${action}s ${which}${but}${reason ? `: ${reason}` : "."}`);
      }
      if (selectsAll(jobs)) break;
      exceptions ||= !isStop;
    }
  }
  return sentences;
}

/** The fields of a rule as a person fills them in. */
export interface RuleForm {
  action: "pause" | "reject" | "rate-limit" | "accept" | "continue";
  most: string;
  priority: string;
  reason: string;
  ids: string;
  tenants: string;
  users: string;
  clusters: string;
  operations: string[];
  providers: string;
  newOnly: boolean;
}

export const EMPTY_RULE: RuleForm = { action: "pause", most: "1", priority: "100", reason: "", ids: "", tenants: "", users: "", clusters: "", operations: [], providers: "", newOnly: false };

/** Names of a text, separated by spaces or commas. */
export const namesOf = (text: string) => text.split(/[\s,]+/).filter(Boolean);

export function formOf({ action, priority, reason, jobs }: RuleContent): RuleForm {
  const joined = (names: readonly (string | number)[] = []) => names.join(" ");
  return {
    action: typeof action === "object" ? "rate-limit" : action,
    most: typeof action === "object" ? String(action["rate-limit"]) : "1",
    priority: String(priority),
    reason,
    ids: joined(jobs.ids),
    tenants: joined(jobs.tenants),
    users: joined(jobs.users),
    clusters: joined(jobs.clusters),
    operations: jobs.operations ?? [],
    providers: joined(jobs.providers),
    newOnly: jobs.new_only ?? false,
  };
}

/** The rule of a form; a text: the first field that is wrong. */
export function contentOf(form: RuleForm): RuleContent | string {
  const most = numberOf(form.most, 1, 2 ** 32 - 1);
  const priority = numberOf(form.priority, 0, 2 ** 32 - 1);
  const ids = namesOf(form.ids).map((id) => numberOf(id, 1, Number.MAX_SAFE_INTEGER));
  if (form.action === "rate-limit" && most === null) return "“At most” needs a whole number from 1.";
  if (priority === null) return "“Order” needs a whole number from 0.";
  if (ids.includes(null)) return "“Jobs” needs numbers of jobs, separated by spaces.";
  const named = <K extends string, T>(key: K, names: T[]) => (names.length > 0 ? { [key]: names } : {});
  return {
    action: form.action === "rate-limit" ? { "rate-limit": most! } : form.action,
    priority,
    reason: form.reason.trim(),
    jobs: {
      ...named("ids", ids as number[]),
      ...named("tenants", namesOf(form.tenants)),
      ...named("users", namesOf(form.users)),
      ...named("clusters", namesOf(form.clusters)),
      ...named("operations", form.operations),
      ...named("providers", namesOf(form.providers)),
      ...(form.newOnly ? { new_only: true } : {}),
    },
  };
}
