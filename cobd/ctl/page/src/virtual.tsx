// A list of which only the visible rows exist. The keyboard moves an active row; Enter opens it.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export interface VirtualProps {
  /** Unique on the page; the ids of rows begin with it. */
  id: string;
  label: string;
  role: "grid" | "treegrid";
  count: number;
  rowHeight: number;
  columns: number;
  /** The header row, inside of the grid. */
  head?: ComponentChildren;
  /** The cells of a row. */
  row: (at: number) => ComponentChildren;
  rowProps?: (at: number) => Record<string, unknown>;
  keyOf: (at: number) => string | number;
  /** A click on a row; also Enter, unless `onEnter` is given. */
  onOpen: (at: number) => void;
  onEnter?: (at: number) => void;
  /** Keys besides up, down, page, home, end and Enter; true: the key is used. Returns the next active row, too. */
  onKey?: (event: KeyboardEvent, at: number) => number | boolean | undefined;
  active: number;
  onActive: (at: number) => void;
  /** Called with the visible part after each scroll. */
  onView?: (view: { top: number; height: number }) => void;
  class?: string;
}

const SPARE = 6;

export function Virtual(props: VirtualProps) {
  const { id, count, rowHeight, active } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const head = useRef<HTMLDivElement>(null);
  const onView = useRef(props.onView);
  onView.current = props.onView;
  const [view, setView] = useState({ top: 0, height: 800 });

  useLayoutEffect(() => {
    const element = scroller.current!;
    const read = () => {
      const next = { top: element.scrollTop, height: element.clientHeight };
      onView.current?.(next);
      setView(next);
    };
    read();
    const observer = new ResizeObserver(read);
    observer.observe(element);
    element.addEventListener("scroll", read, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", read);
    };
  }, []);

  const headHeight = head.current?.offsetHeight ?? 0;
  const show = (at: number) => {
    const element = scroller.current!;
    const top = at * rowHeight;
    const visible = element.clientHeight - headHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + rowHeight > element.scrollTop + visible) element.scrollTop = top + rowHeight - visible;
  };
  useEffect(() => {
    if (active >= 0 && active < count) show(active);
  }, [active]);

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(view.height / rowHeight) - 1);
    const moves: Record<string, number> = {
      ArrowDown: active + 1,
      ArrowUp: active - 1,
      PageDown: active + page,
      PageUp: active - page,
      Home: 0,
      End: count - 1,
    };
    const own = props.onKey?.(event, active);
    let next = typeof own === "number" ? own : moves[event.key];
    if (own === true) event.preventDefault();
    else if (next !== undefined && count > 0) {
      event.preventDefault();
      next = Math.max(0, Math.min(count - 1, next));
      props.onActive(next);
    } else if (event.key === "Enter" && active >= 0 && active < count) {
      event.preventDefault();
      (props.onEnter ?? props.onOpen)(active);
    }
  };

  const first = Math.max(0, Math.floor(view.top / rowHeight) - SPARE);
  const last = Math.min(count, Math.ceil((view.top + view.height) / rowHeight) + SPARE);
  const shown = Array.from({ length: Math.max(0, last - first) }, (_, at) => first + at);
  // The active row exists even when it is scrolled away: `aria-activedescendant` names it.
  if (active >= 0 && active < count && (active < first || active >= last)) shown.push(active);
  return (
    <div
      ref={scroller}
      class={`virtual ${props.class ?? ""}`}
      role={props.role}
      aria-label={props.label}
      aria-rowcount={count + (props.head ? 1 : 0)}
      aria-colcount={props.columns}
      aria-activedescendant={active >= 0 && active < count ? `${id}-${active}` : undefined}
      tabIndex={0}
      onKeyDown={onKeyDown}
      onFocus={(event) => {
        if (event.target === event.currentTarget && active < 0 && count > 0) props.onActive(0);
      }}
    >
      {props.head && (
        <div ref={head} class="virtual-head row" role="row" aria-rowindex={1}>
          {props.head}
        </div>
      )}
      <div class="virtual-space" role="rowgroup" style={{ height: `${count * rowHeight}px` }}>
        {shown.map((at) => (
          <div
            key={props.keyOf(at)}
            id={`${id}-${at}`}
            class={`row ${at === active ? "active" : ""}`}
            role="row"
            aria-rowindex={at + (props.head ? 2 : 1)}
            aria-selected={at === active}
            style={{ height: `${rowHeight}px`, transform: `translateY(${at * rowHeight}px)` }}
            onClick={(event) => {
              props.onActive(at);
              if (!(event.target as Element).closest("a,button,input")) props.onOpen(at);
            }}
            {...props.rowProps?.(at)}
          >
            {props.row(at)}
          </div>
        ))}
      </div>
    </div>
  );
}
