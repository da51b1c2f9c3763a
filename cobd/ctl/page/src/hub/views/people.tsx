// Tenants, users, groups, grants and quotas.
import { useState } from "preact/hooks";
import { Columns, Empty, Section } from "../../marks";
import { me, send, setTenant, tenant as chosen } from "../api";
import { changed, useHub } from "../load";
import { Answered, Dialog, Field } from "../parts";
import { list, quotaWords } from "../texts";
import type { Directory, Grant, Quota, Tenant } from "../wire";

type Wish =
  | { do: "add-tenant" }
  | { do: "quota"; tenant: string; quota: Quota; perUser: Quota }
  | { do: "add-user"; tenant: string }
  | { do: "remove-user"; tenant: string; user: string }
  | { do: "rank"; tenant: string; user: string; administrator: boolean }
  | { do: "password"; tenant: string; user: string }
  | { do: "revoke"; tenant: string; grant: string; words: string };

const change = (body: unknown) => send<void>("POST", ["directory"], body).then(changed);

export function PeopleView() {
  const directory = useHub<Directory>(["directory"], {}, 10_000);
  const [wish, setWish] = useState<Wish | null>(null);
  const isSuper = me.value?.tenant === null;
  const manages = me.value?.standing !== "user";
  return (
    <div class="view">
      <div class="fields">
        <h1>People</h1>
        <span class="grow" />
        {isSuper && (
          <button type="button" class="primary" onClick={() => setWish({ do: "add-tenant" })}>
            New tenant
          </button>
        )}
      </div>
      <Answered of={directory}>
        {(found) => (
          <>
            {isSuper && (
              <Section title="Super administrators">
                <p>{list(found.super_administrators, 20)}</p>
              </Section>
            )}
            {Object.entries(found.tenants).map(([name, tenant]) => (
              <TenantPanel key={name} name={name} tenant={tenant} manages={manages} isSuper={isSuper} ask={setWish} />
            ))}
            {Object.keys(found.tenants).length === 0 && <Empty>There are no tenants yet.</Empty>}
          </>
        )}
      </Answered>
      {wish && <WishDialog wish={wish} close={() => setWish(null)} />}
    </div>
  );
}

function TenantPanel({ name, tenant, manages, isSuper, ask }: { name: string; tenant: Tenant; manages: boolean; isSuper: boolean; ask: (wish: Wish) => void }) {
  const users = Object.entries(tenant.users);
  const grants = [
    ...users.flatMap(([user, of]) => Object.entries(of.grants).map(([id, grant]) => ({ id, grant, to: `user ${user}` }))),
    ...Object.entries(tenant.groups).flatMap(([group, of]) => Object.entries(of.grants).map(([id, grant]) => ({ id, grant, to: `group ${group}` }))),
  ];
  const tools = (
    <span class="buttons">
      {isSuper && (
        <button type="button" class="small" onClick={() => setTenant(chosen.value === name ? "" : name)} aria-pressed={chosen.value === name}>
          {chosen.value === name ? "Chosen" : "Choose"}
        </button>
      )}
      {isSuper && (
        <button type="button" class="small" onClick={() => ask({ do: "quota", tenant: name, quota: tenant.quota, perUser: tenant.per_user })}>
          Quota
        </button>
      )}
      {manages && (
        <button type="button" class="small" onClick={() => ask({ do: "add-user", tenant: name })}>
          New user
        </button>
      )}
    </span>
  );
  return (
    <Section title={`Tenant ${name}`} more={tools} class="scroll-x">
      <p class="muted">
        {quotaWords(tenant.quota)}; for each user {quotaWords(tenant.per_user)}
      </p>
      {users.length === 0 ? (
        <Empty>No users.</Empty>
      ) : (
        <table class="list">
          <Columns of={["User", "Rank", "Groups", "Own quota", ["Changes", "hidden"]]} />
          <tbody>
            {users.map(([user, of]) => (
              <tr key={user}>
                <th scope="row" class="id">
                  {user}
                </th>
                <td>{of.administrator ? "administrator" : "user"}</td>
                <td>{list(of.groups, 12) || "–"}</td>
                <td>{of.quota ? quotaWords(of.quota) : "–"}</td>
                <td class="right">
                  {manages && (
                    <span class="buttons">
                      <button type="button" class="small" aria-label={`Password of ${user}`} onClick={() => ask({ do: "password", tenant: name, user })}>
                        Password
                      </button>
                      <button
                        type="button"
                        class="small"
                        onClick={() => ask({ do: "rank", tenant: name, user, administrator: !of.administrator })}
                        aria-label={`${of.administrator ? "Make a user" : "Make an administrator"}: ${user}`}
                      >
                        {of.administrator ? "Make a user" : "Make an administrator"}
                      </button>
                      <button type="button" class="small" aria-label={`Remove ${user}`} onClick={() => ask({ do: "remove-user", tenant: name, user })}>
                        Remove
                      </button>
                    </span>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {grants.length > 0 && (
        <>
          <h3>Grants</h3>
          <ul class="rows">
            {grants.map(({ id, grant, to }) => (
              <li key={id}>
                <span class="number">{id}</span>
                <span class="grow">
                  {to}: {grantWords(grant)}
                </span>
                <button type="button" class="small" onClick={() => ask({ do: "revoke", tenant: name, grant: id, words: `${to}: ${grantWords(grant)}` })}>
                  Take back
                </button>
              </li>
            ))}
          </ul>
        </>
      )}
    </Section>
  );
}

function grantWords(grant: Grant): string {
  const { kind, names, shared } = grant.on;
  const which = names === "all" ? `each ${shared ? "shared " : ""}${kind}` : `${shared ? "shared " : ""}${kind} ${list(names.listed)}`;
  return `${list(grant.actions)} on ${which}`;
}

const LIMITS = ["machines", "clusters", "parallel_jobs"] as const;

function QuotaFields({ title, quota, set }: { title: string; quota: Record<string, string>; set: (quota: Record<string, string>) => void }) {
  return (
    <fieldset>
      <legend>{title}</legend>
      <div class="form-grid">
        {LIMITS.map((limit) => (
          <Field key={limit} label={`Most ${limit.replace("_", " ")}`}>
            <input inputMode="numeric" placeholder="no limit" value={quota[limit] ?? ""} onInput={(event) => set({ ...quota, [limit]: event.currentTarget.value })} />
          </Field>
        ))}
      </div>
    </fieldset>
  );
}

const textsOf = (quota: Quota) => Object.fromEntries(LIMITS.map((limit) => [limit, quota[limit]?.toString() ?? ""]));

/** `null`: a limit is no number. */
function quotaOf(texts: Record<string, string>): Quota | null {
  const given = LIMITS.map((limit) => [limit, (texts[limit] ?? "").trim()] as const).filter(([, text]) => text !== "");
  if (given.some(([, text]) => !/^\d{1,9}$/.test(text))) return null;
  return Object.fromEntries(given.map(([limit, text]) => [limit, Number(text)]));
}

function WishDialog({ wish, close }: { wish: Wish; close: () => void }) {
  const [name, setName] = useState("");
  const [administrator, setAdministrator] = useState(false);
  const [password, setPassword] = useState("");
  const [quota, setQuota] = useState(() => textsOf(wish.do === "quota" ? wish.quota : {}));
  const [perUser, setPerUser] = useState(() => textsOf(wish.do === "quota" ? wish.perUser : {}));
  const [limits, each] = [quotaOf(quota), quotaOf(perUser)];
  const nameField = (label: string) => (
    <Field label={label} hint="lower-case letters, digits and -">
      <input required value={name} onInput={(event) => setName(event.currentTarget.value)} autocapitalize="none" autocomplete="off" spellcheck={false} />
    </Field>
  );
  const passwordField = (hint: string) => (
    <Field label="Password" hint={hint}>
      <input type="password" value={password} onInput={(event) => setPassword(event.currentTarget.value)} autocomplete="new-password" />
    </Field>
  );
  const setPasswordOf = (tenant: string, user: string) => send<void>("PUT", ["password"], { user: { tenant, name: user }, password });
  switch (wish.do) {
    case "add-tenant":
    case "quota": {
      const isNew = wish.do === "add-tenant";
      const submit = () =>
        change(
          isNew
            ? { "add-tenant": { tenant: name.trim(), quota: limits, per_user: each } }
            : { "set-quota": { tenant: wish.tenant, quota: limits, per_user: each } },
        );
      return (
        <Dialog title={isNew ? "New tenant" : `Quota of ${wish.tenant}`} button={isNew ? "Add" : "Set"} ready={(!isNew || name.trim() !== "") && limits !== null && each !== null} close={close} submit={submit}>
          {isNew && nameField("Name")}
          <QuotaFields title="The whole tenant" quota={quota} set={setQuota} />
          <QuotaFields title="Each user" quota={perUser} set={setPerUser} />
        </Dialog>
      );
    }
    case "add-user": {
      const submit = async () => {
        await change({ "add-user": { tenant: wish.tenant, user: name.trim(), administrator } });
        if (password !== "") await setPasswordOf(wish.tenant, name.trim());
      };
      return (
        <Dialog title={`New user of ${wish.tenant}`} button="Add" ready={name.trim() !== "" && (password === "" || password.length >= 10)} close={close} submit={submit}>
          {nameField("Name")}
          {passwordField("at least 10 characters; empty: the user has tokens only")}
          <label class="choice">
            <input type="checkbox" checked={administrator} onChange={(event) => setAdministrator(event.currentTarget.checked)} /> administrator of the tenant
          </label>
        </Dialog>
      );
    }
    case "password":
      return (
        <Dialog title={`Password of ${wish.user}`} button="Set the password" ready={password.length >= 10} close={close} submit={() => setPasswordOf(wish.tenant, wish.user)}>
          <p>All sessions of {wish.user} end.</p>
          {passwordField("at least 10 characters")}
        </Dialog>
      );
    case "rank": {
      const { tenant, user, administrator } = wish;
      const rank = administrator ? "an administrator" : "a user";
      return (
        <Dialog title={`Make ${user} ${rank} of ${tenant}`} button="Change the rank" close={close} submit={() => change({ "set-administrator": { tenant, user, administrator } })}>
          <p>{administrator ? "An administrator has all rights in the tenant." : "A user has rights on own clusters, and by grants."}</p>
        </Dialog>
      );
    }
    case "remove-user":
      return (
        <Dialog title={`Remove ${wish.user}`} button="Remove" typed={wish.user} close={close} submit={() => change({ "remove-user": { tenant: wish.tenant, user: wish.user } })}>
          <p>The user's tokens, sessions and grants end. A user who owns clusters can't be removed.</p>
        </Dialog>
      );
    case "revoke":
      return (
        <Dialog title={`Take back grant ${wish.grant}`} button="Take back" close={close} submit={() => change({ revoke: { tenant: wish.tenant, grant: Number(wish.grant) } })}>
          <p>{wish.words}</p>
        </Dialog>
      );
  }
}
