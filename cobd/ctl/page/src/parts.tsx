// Small parts of all views: marks, links, texts, messages.
import { orderOf } from "./api";
import { Mark } from "./marks";
import { propose } from "./proposal";
import { address, cobAddress, hostAddress } from "./route";
import { hostNames, isKnown, now, table } from "./store";
import { CLASSES, FLAGS, type Table } from "./table";
import type { HostMark } from "./wire";
import { moment, pieces, span } from "./words";

export { Columns, Copy, Empty, Loading, Mark, Section } from "./marks";

export const HOST_CLASS: Record<HostMark, number> = { good: 0, busy: 1, bad: 3, unknown: 5 };

export function ClassWord({ cls }: { cls: number }) {
  return (
    <span class={`class-word c-${CLASSES[cls] ?? "unknown"}`}>
      <Mark cls={cls} />
      {CLASSES[cls] ?? "unknown"}
    </span>
  );
}

export function CobLink({ id }: { id: string }) {
  return (
    <a class="id" href={cobAddress(id)}>
      {id}
    </a>
  );
}

export function HostLink({ name }: { name: string }) {
  return (
    <a class="id" href={hostAddress(name)}>
      {name}
    </a>
  );
}

/** A text in which known hosts and objects are links, and commands that the page can give have a button. */
export function Text({ children, without }: { children: string; without?: string }) {
  return (
    <>
      {pieces(children, (name) => name !== without && isKnown(name)).map((piece) => {
        if (piece.as === "plain") return piece.text;
        if (piece.as === "name") {
          return hostNames.value.has(piece.text) ? <HostLink name={piece.text} /> : <CobLink id={piece.text} />;
        }
        return <Command text={piece.text} />;
      })}
    </>
  );
}

/** A command; with a button if the page can carry it out. */
export function Command({ text, primary }: { text: string; primary?: boolean }) {
  const order = orderOf(text);
  const view = viewOf(text);
  return (
    <span class="command">
      <code>{text}</code>
      {order && (
        <button type="button" class={primary ? "primary" : "small"} onClick={() => propose(order)}>
          {labelOf(order.order)}
        </button>
      )}
      {view && (
        <a class={primary ? "button primary" : "button small"} href={view}>
          Show
        </a>
      )}
    </span>
  );
}

function labelOf(order: string): string {
  return order[0]!.toUpperCase() + order.slice(1);
}

/** The view that shows the same as a command, or an empty text. */
function viewOf(command: string): string {
  const [program, name, what, ...more] = command.trim().split(/\s+/);
  if (program !== "cobctl" || what === undefined || more.length > 0) return "";
  if (!["explain", "output", "logs", "diff", "history"].includes(name ?? "")) return "";
  if (hostNames.value.has(what)) return hostAddress(what);
  return (table.value?.index(what) ?? -1) >= 0 ? cobAddress(what) : "";
}

/** The time since a moment of the server's clock; its title is the moment. */
export function Since({ ms }: { ms: number }) {
  if (!ms) return <span class="muted">–</span>;
  return (
    <time class="number" dateTime={new Date(ms).toISOString()} title={moment(ms, 0)}>
      {span(now.value - ms)}
    </time>
  );
}

export function At({ ms, withMs }: { ms: number; withMs?: boolean }) {
  return (
    <time class="number" dateTime={new Date(ms).toISOString()}>
      {moment(ms, now.value, withMs)}
    </time>
  );
}

const FLAG_WORDS: Record<string, string> = {
  drift: "drift",
  stuck: "stuck",
  observed: "observed only",
  departs: "departs",
};

export function FlagWords({ flags }: { flags: number }) {
  return (
    <>
      {Object.entries(FLAGS).map(([name, flag]) =>
        flags & flag ? (
          <span key={name} class={`flag flag-${name}`}>
            {FLAG_WORDS[name]}
          </span>
        ) : null,
      )}
    </>
  );
}

/** `down → up`, or the state alone if it is the desired state. */
export function StateWords({ index, of }: { index: number; of?: Table }) {
  const objects = of ?? table.value!;
  const state = objects.state[index] ?? -1;
  const target = objects.target[index] ?? -1;
  const name = objects.stateName(state);
  return (
    <span class="states">
      {name}
      {target >= 0 && target !== state && (
        <>
          <span class="muted" aria-label="to">
            {" → "}
          </span>
          {objects.stateName(target)}
        </>
      )}
    </span>
  );
}

/** Links to what an object waits for; a long list is cut. */
export function WaitLinks({ index, most = 3, of }: { index: number; most?: number; of?: Table }) {
  const objects = of ?? table.value!;
  const list = objects.waits.get(index) ?? [];
  if (list.length === 0) return null;
  return (
    <span class="waits">
      waits for{" "}
      {list.slice(0, most).map((other, at) => (
        <span key={other}>
          {at > 0 && ", "}
          <CobLink id={objects.ids[other] ?? ""} />
        </span>
      ))}
      {list.length > most && ` and ${list.length - most} more`}
    </span>
  );
}

export function Trouble({ error, hints = [], again }: { error: string; hints?: string[]; again?: () => void }) {
  if (!error) return null;
  return (
    <div class="trouble" role="alert">
      <p>
        <Mark cls={3} /> <Text>{error}</Text>
      </p>
      {hints.map((hint) => (
        <p key={hint} class="hint">
          <Text>{hint}</Text>
        </p>
      ))}
      {again && (
        <button type="button" class="small" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** A number that leads to the list of the objects that it counts. */
export function CountLink({ number, params, label }: { number: number; params: Record<string, string>; label: string }) {
  return (
    <a class={`number ${number === 0 ? "zero" : ""}`} href={address("objects", "", params)} aria-label={label}>
      {number.toLocaleString("en")}
    </a>
  );
}
