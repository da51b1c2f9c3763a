// The log-in.
import { useState } from "preact/hooks";
import { ended, logIn } from "../api";
import { Failed, failOf, Field, type Fail } from "../parts";

export function LogIn() {
  const [name, setName] = useState(ended.value);
  const [password, setPassword] = useState("");
  const [busy, setBusy] = useState(false);
  const [fail, setFail] = useState<Fail | null>(null);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setFail(null);
    try {
      await logIn(name, password);
    } catch (error) {
      setFail(failOf(error));
      setBusy(false);
    }
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
    </main>
  );
}
