// The caller's own password and tokens.
import { useState } from "preact/hooks";
import { Columns, Copy, Empty, Section } from "../../marks";
import { me, send } from "../api";
import { changed, useHub } from "../load";
import { Answered, Dialog, Field, Moment } from "../parts";
import { secondsOf, userWords } from "../texts";
import type { TokenInfo } from "../wire";

export function AccountView() {
  const tokens = useHub<TokenInfo[]>(["tokens"], {}, 10_000);
  const [asks, setAsks] = useState<"password" | "token" | { revoke: TokenInfo } | null>(null);
  const close = () => setAsks(null);
  const who = me.value;
  return (
    <div class="view">
      <div class="fields">
        <h1>Account</h1>
      </div>
      <Section
        title="You"
        more={
          <button type="button" onClick={() => setAsks("password")}>
            Change the password
          </button>
        }
      >
        <p>
          {who?.user}: {who?.standing.replace("-", " ")}
          {who?.tenant && ` of the tenant ${who.tenant}`}
        </p>
      </Section>
      <Section
        title="Tokens and sessions"
        class="scroll-x"
        more={
          <button type="button" onClick={() => setAsks("token")}>
            New token
          </button>
        }
      >
        <Answered of={tokens}>
          {(all) =>
            all.length === 0 ? (
              <Empty>No tokens.</Empty>
            ) : (
              <table class="list">
                <Columns of={["Token", "User", "Purpose", "Made", "Ends", ["Changes", "hidden"]]} />
                <tbody>
                  {all.map((token) => (
                    <tr key={token.id}>
                      <th scope="row" class="id">
                        {token.id}
                      </th>
                      <td>{userWords(token.user)}</td>
                      <td>{token.label || "–"}</td>
                      <td>
                        <Moment ms={token.made_ms} />
                      </td>
                      <td>
                        <Moment ms={token.ends_ms} />
                      </td>
                      <td class="right">
                        <button type="button" class="small" aria-label={`Take back ${token.id}`} onClick={() => setAsks({ revoke: token })}>
                          Take back
                        </button>
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            )
          }
        </Answered>
      </Section>
      {asks === "password" && <PasswordDialog close={close} />}
      {asks === "token" && <TokenDialog close={close} />}
      {asks !== null && typeof asks === "object" && (
        <Dialog title="Take back a token" button="Take back" close={close} submit={() => send<void>("DELETE", ["tokens", asks.revoke.id], undefined).then(changed)}>
          <p>
            The token <code>{asks.revoke.id}</code> of {userWords(asks.revoke.user)} is not valid any more at once.
          </p>
        </Dialog>
      )}
    </div>
  );
}

function PasswordDialog({ close }: { close: () => void }) {
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const [present, setPresent] = useState("");
  return (
    <Dialog title="Change the password" button="Change" ready={password.length >= 10 && password === again} close={close} submit={() => send<void>("PUT", ["password"], { password, present })}>
      <p>All your sessions end, this one too. Tokens stay.</p>
      <Field label="Present password">
        <input type="password" value={present} onInput={(event) => setPresent(event.currentTarget.value)} autocomplete="current-password" />
      </Field>
      <Field label="New password" hint="at least 10 characters">
        <input type="password" value={password} onInput={(event) => setPassword(event.currentTarget.value)} autocomplete="new-password" />
      </Field>
      <Field label="Again" hint={again !== "" && password !== again ? "the two passwords differ" : ""}>
        <input type="password" value={again} onInput={(event) => setAgain(event.currentTarget.value)} autocomplete="new-password" />
      </Field>
    </Dialog>
  );
}

function TokenDialog({ close }: { close: () => void }) {
  const [label, setLabel] = useState("");
  const [lives, setLives] = useState("30d");
  const [token, setToken] = useState("");
  const seconds = lives.trim() === "" ? undefined : secondsOf(lives);
  const submit = async () => {
    if (token) return undefined;
    const made = await send<{ token: string }>("POST", ["tokens"], { label, ...(seconds === undefined ? {} : { lives_s: seconds }) });
    setToken(made.token);
    changed();
    return false as const;
  };
  return (
    <Dialog title="New token" button={token ? "Done" : "Make the token"} ready={seconds !== null} close={close} submit={submit}>
      {token ? (
        <>
          <p>The hub keeps only a hash: this is the only time that the token is shown.</p>
          <p class="with-buttons">
            <code class="token">{token}</code> <Copy text={token} />
          </p>
        </>
      ) : (
        <>
          <Field label="Purpose">
            <input value={label} maxLength={100} onInput={(event) => setLabel(event.currentTarget.value)} />
          </Field>
          <Field label="Lives" hint={seconds === null ? "write 36h, 7d or 2w" : "36h, 7d, 2w; empty: until you are removed"}>
            <input value={lives} onInput={(event) => setLives(event.currentTarget.value)} autocomplete="off" />
          </Field>
        </>
      )}
    </Dialog>
  );
}
