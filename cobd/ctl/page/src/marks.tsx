// Parts without any knowledge of a cluster: marks of states, sections, buttons.
import type { ComponentChildren, RefObject } from "preact";
import { useState } from "preact/hooks";
import { CLASSES, UNKNOWN } from "./table";

/** The shape of each class; the shapes differ without colours, too. */
const SHAPES: ComponentChildren[] = [
  <g>
    <circle cx="8" cy="8" r="6.5" fill="currentColor" />
    <path d="M5 8.2l2.1 2.1L11 6" class="ink" />
  </g>,
  <path d="M3.5 2.2v11.6L14 8z" fill="currentColor" stroke="currentColor" stroke-linejoin="round" />,
  <g>
    <path d="M3.5 1.5h9M3.5 14.5h9" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" />
    <path d="M4.5 2c0 3 2.2 4.2 3.5 6-1.3 1.8-3.5 3-3.5 6h7c0-3-2.2-4.2-3.5-6 1.3-1.8 3.5-3 3.5-6z" fill="currentColor" />
  </g>,
  <g>
    <path d="M5 1h6l4 4v6l-4 4H5l-4-4V5z" fill="currentColor" />
    <path d="M5.3 5.300l5.4 5.400M10.7 5.300l-5.4 5.4" class="ink" />
  </g>,
  <rect x="2" y="2" width="12" height="12" rx="2" fill="currentColor" />,
  <g>
    <circle cx="8" cy="8" r="6.3" fill="none" stroke="currentColor" stroke-width="1.5" stroke-dasharray="2.6 2" />
    <path d="M6.2 6.400a1.9 1.9 0 1 1 2.7 1.700c-.7.4-.9.7-.9 1.400M8 11.300v.3" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" />
  </g>,
];

export function Mark({ cls }: { cls: number }) {
  return (
    <svg class={`mark c-${CLASSES[cls] ?? "unknown"}`} viewBox="0 0 16 16" aria-hidden="true">
      {SHAPES[cls] ?? SHAPES[UNKNOWN]}
    </svg>
  );
}

export function Loading() {
  return (
    <p class="loading muted" role="status">
      Loading…
    </p>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty muted">{children}</p>;
}

export function Section(props: { title: string; more?: ComponentChildren; class?: string; children: ComponentChildren }) {
  const id = `s-${props.title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return (
    <section class={`panel ${props.class ?? ""}`} aria-labelledby={id}>
      <header>
        <h2 id={id}>{props.title}</h2>
        {props.more}
      </header>
      {props.children}
    </section>
  );
}

export function Copy({ text }: { text: string }) {
  const [done, setDone] = useState(false);
  const copy = () => {
    void navigator.clipboard.writeText(text).then(() => {
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    });
  };
  return (
    <button type="button" class="small" onClick={copy}>
      {done ? "Copied" : "Copy"}
    </button>
  );
}

/** The first link of a page, for the keyboard: it skips the views at the top. */
export function SkipLink({ to }: { to: RefObject<HTMLElement | null> }) {
  return (
    <a
      class="skip"
      href="#main"
      onClick={(event) => {
        event.preventDefault();
        to.current?.focus();
      }}
    >
      To the content
    </a>
  );
}

/** The title of a column, with its class. Without a title, there is no such column. */
type Column = string | [title: string, of: "right" | "wide" | "hidden"] | false | undefined;

/** The head of a table. The title of a `hidden` column is for readers alone. */
export function Columns({ of }: { of: Column[] }) {
  const columns = of.filter((column) => column !== false && column !== undefined).map((column) => (typeof column === "string" ? ([column, undefined] as const) : column));
  return (
    <thead>
      <tr>
        {columns.map(([title, cls]) => (
          <th key={title} scope="col" class={cls === "hidden" ? undefined : cls}>
            {cls === "hidden" ? <span class="hidden">{title}</span> : title}
          </th>
        ))}
      </tr>
    </thead>
  );
}
