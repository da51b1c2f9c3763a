// The queue of jobs: its drain and its rules.
import { useState } from "preact/hooks";
import { Columns, Empty, Mark, Section } from "../../marks";
import { address } from "../../route";
import { count } from "../../words";
import { me, ofTenant, send, tenant } from "../api";
import { changed, useHub } from "../load";
import { Answered, Choices, Dialog, Field, Moment } from "../parts";
import { actionWords, contentOf, EMPTY_RULE, formOf, ruleId, selectionWords, stops, type RuleForm } from "../queue";
import { OPERATIONS, type Directory, type Queue, type Rule } from "../wire";

const LONGEST_REASON = 300;

const isSuper = () => me.value?.tenant === null;

/** Why no order is accepted or no job starts; nothing in the ordinary case. */
export function QueueNotice() {
  const queue = useHub<Queue>(["queue"], {}, 5000);
  return queue.value ? <Notice queue={queue.value} /> : null;
}

function Notice({ queue: { drain, rules } }: { queue: Queue }) {
  const sentences = stops(rules);
  if (!drain && sentences.length === 0) return null;
  return (
    <div class="notice" role="status">
      <Mark cls={2} />
      <div>
        {drain && (
          <p>
            <b>The hub is drained: it accepts no new orders.</b> {drain.reason && `${drain.reason}. `}
            {drain.by} drains it since <Moment ms={drain.since_ms} />. Jobs that run or wait go on.
          </p>
        )}
        {sentences.map((sentence) => (
          <p key={sentence}>
            <b>{sentence}</b>
          </p>
        ))}
      </div>
    </div>
  );
}

type Wish = { do: "drain" | "undrain" } | { do: "set"; rule: Rule | null } | { do: "remove"; rule: Rule };

export function QueueView() {
  const queue = useHub<Queue>(["queue"], {}, 2000);
  const [wish, setWish] = useState<Wish | null>(null);
  const close = () => setWish(null);
  const keeps = me.value?.standing !== "user";
  const drain = queue.value?.drain;
  return (
    <div class="view">
      <div class="fields">
        <h1>Queue</h1>
        <span class="grow" />
        {isSuper() && queue.value && (
          <button type="button" onClick={() => setWish({ do: drain ? "undrain" : "drain" })}>
            {drain ? "Accept orders again" : "Drain the hub"}
          </button>
        )}
        {keeps && (
          <button type="button" class="primary" onClick={() => setWish({ do: "set", rule: null })}>
            New rule
          </button>
        )}
      </div>
      <Answered of={queue}>
        {(found) => (
          <>
            <Notice queue={found} />
            <Section title="Jobs">
              <p>
                {!found.drain && "The hub accepts new orders. "}
                {count(found.running, "running job")} and {count(found.waiting, "waiting job")}.{" "}
                <a href={address("jobs", "", { state: "open", ...ofTenant(tenant.value) })}>Show jobs that have not ended</a>
              </p>
            </Section>
            <Section title="Rules" class="scroll-x">
              <p class="muted">
                The first rule that matches a job applies to it. A job needs the permission of the hub and of its tenant.
                {!isSuper() && " Rules of the hub are not listed here: a job that waits names its rule."}
              </p>
              {found.rules.length === 0 ? <Empty>There are no rules.</Empty> : <Rules rules={found.rules} keeps={keeps} ask={setWish} />}
            </Section>
            {wish?.do === "set" && <RuleDialog rule={wish.rule} rules={found.rules} close={close} />}
          </>
        )}
      </Answered>
      {wish?.do === "drain" && <DrainDialog close={close} />}
      {wish?.do === "undrain" && (
        <Dialog title="Accept orders again" button="Accept orders" close={close} submit={() => send<void>("DELETE", ["queue", "drain"], undefined, { tenant: "" }).then(changed)}>
          <p>The drain ends, and the hub accepts new orders of all users.</p>
        </Dialog>
      )}
      {wish?.do === "remove" && (
        <Dialog
          title={`Remove the rule ${ruleId(wish.rule)}`}
          button="Remove the rule"
          close={close}
          submit={() => send<void>("DELETE", ["queue", "rules", wish.rule.name], undefined, keeperOf(wish.rule.tenant)).then(changed)}
        >
          <p>Jobs that only this rule pauses or limits may start at once.</p>
        </Dialog>
      )}
    </div>
  );
}

/** The query for rules of the hub, or of a tenant. */
const keeperOf = (tenant: string | undefined): Record<string, string> => ({ tenant: tenant ?? "" });

function Rules({ rules, keeps, ask }: { rules: Rule[]; keeps: boolean; ask: (wish: Wish) => void }) {
  return (
    <table class="list rules">
      <Columns of={["Order", "Rule", "Effect", keeps && ["Changes", "hidden"]]} />
      <tbody>
        {rules.map((rule) => (
          <tr key={ruleId(rule)}>
            <td class="number">{rule.content.priority}</td>
            <th scope="row">
              <span class="id">{rule.name}</span>
              <span class="last-line">{rule.tenant ? `of the tenant ${rule.tenant}` : "of the hub"}</span>
            </th>
            <td class="detail">
              {actionWords(rule.content.action)} {selectionWords(rule.content.jobs)}
              {rule.content.reason && <span class="last-line">{rule.content.reason}</span>}
            </td>
            {keeps && (
              <td class="right">
                <span class="buttons">
                  <button type="button" class="small" aria-label={`Change ${ruleId(rule)}`} onClick={() => ask({ do: "set", rule })}>
                    Change
                  </button>
                  <button type="button" class="small" aria-label={`Remove ${ruleId(rule)}`} onClick={() => ask({ do: "remove", rule })}>
                    Remove
                  </button>
                </span>
              </td>
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function DrainDialog({ close }: { close: () => void }) {
  const [reason, setReason] = useState("");
  return (
    <Dialog title="Drain the hub" button="Drain the hub" close={close} submit={() => send<void>("PUT", ["queue", "drain"], { reason: reason.trim() }, { tenant: "" }).then(changed)}>
      <p>The hub refuses new orders of all users, also after a restart. Jobs that run or wait go on. Clusters whose lease ends stay.</p>
      <Field label="Reason" hint="for users whose orders are refused">
        <input value={reason} maxLength={LONGEST_REASON} onInput={(event) => setReason(event.currentTarget.value)} autocomplete="off" />
      </Field>
    </Dialog>
  );
}

const ACTIONS: [RuleForm["action"], string][] = [
  ["pause", "pause: the jobs wait"],
  ["reject", "reject: orders are refused, waiting jobs are canceled"],
  ["rate-limit", "limit: some of the jobs run at a time"],
  ["accept", "accept: no later rule matters"],
  ["continue", "off: the rule has no effect"],
];

/** A new rule, or another content of a rule. */
function RuleDialog({ rule, rules, close }: { rule: Rule | null; rules: Rule[]; close: () => void }) {
  const directory = useHub<Directory>(["directory"], {}, 0);
  const [name, setName] = useState(rule?.name ?? "");
  const [keeper, setKeeper] = useState(rule ? (rule.tenant ?? "") : (me.value?.tenant ?? tenant.value));
  const [form, setForm] = useState(() => (rule ? formOf(rule.content) : EMPTY_RULE));
  const [more] = useState(form.ids + form.tenants + form.users + form.clusters + form.providers !== "" || form.newOnly);
  const set = (part: Partial<RuleForm>) => setForm((before) => ({ ...before, ...part }));
  const content = contentOf(keeper ? { ...form, tenants: "" } : form);
  const isTaken = !rule && rules.some((one) => one.name === name.trim() && (one.tenant ?? "") === keeper);
  const submit = () => send<void>("PUT", ["queue", "rules", name.trim()], content, keeperOf(keeper)).then(changed);
  const text = (label: string, key: "ids" | "tenants" | "users" | "clusters" | "providers", hint: string) => (
    <Field label={label} hint={hint}>
      <input value={form[key]} onInput={(event) => set({ [key]: event.currentTarget.value })} autocapitalize="none" autocomplete="off" spellcheck={false} />
    </Field>
  );
  const of = (noun: string) => (keeper ? noun : `TENANT/${noun}`);
  return (
    <Dialog title={rule ? `Rule ${ruleId(rule)}` : "New rule"} button="Save the rule" ready={name.trim() !== "" && !isTaken && typeof content !== "string"} close={close} submit={submit}>
      {!rule && (
        <div class="form-grid">
          <Field label="Name" hint={isTaken ? "there is a rule of this name; change that one" : "lower-case letters, digits and -"}>
            <input required value={name} onInput={(event) => setName(event.currentTarget.value)} autocapitalize="none" autocomplete="off" spellcheck={false} />
          </Field>
          {isSuper() && (
            <Field label="Kept by">
              <select value={keeper} onChange={(event) => setKeeper(event.currentTarget.value)}>
                <option value="">the hub</option>
                {Object.keys(directory.value?.tenants ?? {}).map((name) => (
                  <option key={name} value={name}>
                    tenant {name}
                  </option>
                ))}
              </select>
            </Field>
          )}
        </div>
      )}
      <Field label="Effect">
        <select value={form.action} onChange={(event) => set({ action: event.currentTarget.value as RuleForm["action"] })}>
          {ACTIONS.map(([action, words]) => (
            <option key={action} value={action}>
              {words}
            </option>
          ))}
        </select>
      </Field>
      <div class="form-grid">
        {form.action === "rate-limit" && (
          <Field label="At most" hint="jobs at a time">
            <input inputMode="numeric" value={form.most} onInput={(event) => set({ most: event.currentTarget.value })} />
          </Field>
        )}
        <Field label="Order" hint="the smaller number comes first">
          <input inputMode="numeric" value={form.priority} onInput={(event) => set({ priority: event.currentTarget.value })} />
        </Field>
        <Field label="Reason" hint="for users whose jobs it concerns">
          <input value={form.reason} maxLength={LONGEST_REASON} onInput={(event) => set({ reason: event.currentTarget.value })} autocomplete="off" />
        </Field>
      </div>
      <Choices title="Operations; none: all" all={OPERATIONS} chosen={form.operations} set={(operations) => set({ operations: OPERATIONS.filter((one) => operations.includes(one)) })} />
      <details open={more}>
        <summary>More conditions</summary>
        <div class="form-grid">
          {!keeper && text("Tenants", "tenants", "separated by spaces; empty: all")}
          {text("Users", "users", of("USER"))}
          {text("Clusters", "clusters", of("CLUSTER"))}
          {text("Providers", "providers", "of the machines")}
          {text("Jobs", "ids", "numbers")}
        </div>
        <label class="choice">
          <input type="checkbox" checked={form.newOnly} onChange={(event) => set({ newOnly: event.currentTarget.checked })} /> only jobs that are ordered from now on
        </label>
      </details>
      <p class={typeof content === "string" ? "warning" : "muted"}>{typeof content === "string" ? content : `Effect: ${actionWords(content.action)} ${selectionWords(content.jobs)}.`}</p>
    </Dialog>
  );
}
