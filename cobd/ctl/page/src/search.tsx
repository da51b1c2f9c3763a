// The search for a host or an object: a combobox after the ARIA pattern. The key `/` leads to it.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { HOST_CLASS, Mark } from "./parts";
import { address, cobAddress, go, hostAddress } from "./route";
import { hosts, table, tick } from "./store";
import { UNKNOWN } from "./table";

interface Found {
  name: string;
  to: string;
  cls: number;
}

const MOST = 12;

/** Hosts and objects whose name contains the text; names that begin with it, or with a part that begins, come first. */
function find(text: string): Found[] {
  const objects = table.value;
  const wanted = text.trim().toLowerCase();
  if (!objects || wanted === "") return [];
  const good: Found[] = [];
  const rest: Found[] = [];
  const add = (name: string, to: () => string, cls: number) => {
    const at = name.toLowerCase().indexOf(wanted);
    if (at < 0) return;
    (at === 0 || name[at - 1] === "/" ? good : rest).push({ name, to: to(), cls });
  };
  for (const host of hosts.value) add(host.name, () => hostAddress(host.name), HOST_CLASS[host.mark]);
  for (let index = 0; index < objects.size && good.length < MOST; index++) {
    const id = objects.ids[index]!;
    if (rest.length > 500 && !id.toLowerCase().startsWith(wanted)) continue;
    add(id, () => cobAddress(id), objects.cls[index] ?? UNKNOWN);
  }
  return [...good, ...rest].slice(0, MOST);
}

export function Search() {
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [active, setActive] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  const found = useMemo(() => (open ? find(text) : []), [text, open, tick.value]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const inField = (event.target as Element | null)?.closest?.("input,select,textarea,dialog");
      if (event.key !== "/" || inField || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      input.current?.focus();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  const choose = (to: string) => {
    go(to);
    setOpen(false);
    setText("");
    input.current?.blur();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (found.length === 0) return;
      setActive((active + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length);
    } else if (event.key === "Enter") {
      // The list may be older than the last key.
      const value = (event.currentTarget as HTMLInputElement).value.trim();
      const chosen = value === text.trim() ? found[active] : find(value)[0];
      choose(chosen ? chosen.to : address("objects", "", { q: value }));
    } else if (event.key === "Escape") {
      setOpen(false);
      setText("");
      input.current?.blur();
    }
  };
  const shown = open && found.length > 0;
  return (
    <div class="search">
      <input
        ref={input}
        type="search"
        role="combobox"
        aria-label="Search hosts and objects"
        aria-expanded={shown}
        aria-controls="search-list"
        aria-autocomplete="list"
        aria-activedescendant={shown ? `search-${active}` : undefined}
        aria-keyshortcuts="/"
        list={undefined}
        placeholder="Search  /"
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setActive(0);
          setOpen(true);
        }}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onKeyDown={onKeyDown}
      />
      <ul id="search-list" class="search-list" role="listbox" aria-label="Found" hidden={!shown}>
        {found.map((one, at) => (
          <li
            key={one.name}
            id={`search-${at}`}
            role="option"
            aria-selected={at === active}
            onPointerDown={(event) => {
              event.preventDefault();
              choose(one.to);
            }}
          >
            <Mark cls={one.cls} />
            <span class="id">{one.name}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
