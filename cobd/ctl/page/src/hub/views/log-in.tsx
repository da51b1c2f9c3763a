// The log-in.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { ended, leave, logIn, logIns } from "../api";
import { Failed, failOf, Field, type Fail } from "../parts";

const TENANT = "cob-hub-log-in-tenant";

/** Why a provider of identities led back without a session. */
export const refused = signal<Fail | null>(null);

export function LogIn() {
  const [name, setName] = useState(ended.value);
  const [password, setPassword] = useState("");
  const [busy, setBusy] = useState(false);
  const [fail, setFail] = useState<Fail | null>(refused.value);
  const [others, setOthers] = useState<string[]>([]);
  useEffect(() => {
    logIns().then(setOthers, () => setOthers([]));
  }, []);
  const attempt = async (work: () => Promise<void>) => {
    setBusy(true);
    setFail(null);
    refused.value = null;
    try {
      await work();
    } catch (error) {
      setFail(failOf(error));
      setBusy(false);
    }
  };
  const submit = (event: Event) => {
    event.preventDefault();
    void attempt(() => logIn(name, password));
  };
  return (
    <main id="main" class="log-in">
      <form class="panel" onSubmit={submit}>
        <h1>Log in to the hub</h1>
        {ended.value && <p class="warning">The session of {ended.value} has ended.</p>}
        <Field label="User" hint="TENANT/USER, as in web/ann; a super administrator has no tenant">
          <input name="user" required value={name} onInput={(event) => setName(event.currentTarget.value)} autocomplete="username" autocapitalize="none" spellcheck={false} />
        </Field>
        <Field label="Password">
          <input name="password" type="password" required value={password} onInput={(event) => setPassword(event.currentTarget.value)} autocomplete="current-password" />
        </Field>
        {fail && <Failed {...fail} />}
        <button type="submit" class="primary" disabled={busy}>
          {busy ? "Checking…" : "Log in"}
        </button>
      </form>
      {others.length > 0 && <Others names={others} busy={busy} go={(other, of) => void attempt(() => leave(other, of))} />}
    </main>
  );
}

function Others({ names, busy, go }: { names: string[]; busy: boolean; go: (name: string, tenant: string) => void }) {
  const [of, setOf] = useState(localStorage.getItem(TENANT) ?? "");
  const choose = (name: string) => {
    localStorage.setItem(TENANT, of.trim());
    go(name, of.trim());
  };
  return (
    <section class="panel" aria-label="Other log-ins">
      <Field label="Tenant" hint="empty for a super administrator">
        <input name="tenant" value={of} onInput={(event) => setOf(event.currentTarget.value)} autocapitalize="none" spellcheck={false} />
      </Field>
      {names.map((name) => (
        <button key={name} type="button" disabled={busy} onClick={() => choose(name)}>
          Log in with {name}
        </button>
      ))}
    </section>
  );
}
