// Orders of this page and their output.
import { useEffect, useRef, useState } from "preact/hooks";
import { Empty, Mark, Text } from "./parts";
import { drawer, refused } from "./proposal";
import { now, orders } from "./store";
import type { OrderState } from "./wire";
import { span } from "./words";

/** In a longer output, names are not links. */
const LONG = 20_000;

export function Drawer() {
  const [chosen, setChosen] = useState<number | null>(null);
  const list = [...orders.value].reverse();
  const newest = list[0]?.id ?? null;
  useEffect(() => setChosen(newest), [newest]);
  if (!drawer.value) return null;
  return (
    <aside class="drawer" aria-label="Orders">
      <header>
        <h2>Orders</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={() => (drawer.value = false)}>
          ✕
        </button>
      </header>
      {refused.value && (
        <div class="trouble" role="alert">
          <p>
            <Mark cls={3} /> The server refused the order: <Text>{refused.value.words}</Text>
          </p>
          {refused.value.hint && (
            <p class="hint">
              <Text>{refused.value.hint}</Text>
            </p>
          )}
        </div>
      )}
      {list.length === 0 && <Empty>No order was given from this page.</Empty>}
      <ol class="orders">
        {list.map((order) => (
          <li key={order.id}>
            <Order order={order} open={chosen === order.id} onOpen={() => setChosen(chosen === order.id ? null : order.id)} />
          </li>
        ))}
      </ol>
    </aside>
  );
}

function Order({ order, open, onOpen }: { order: OrderState; open: boolean; onOpen: () => void }) {
  const runs = order.ended_ms === undefined;
  const result = runs ? "runs" : order.exit === 0 ? "done" : `exit status ${order.exit ?? "unknown"}`;
  const output = useRef<HTMLPreElement>(null);
  const following = useRef(true);
  useEffect(() => {
    const element = output.current;
    if (element && following.current) element.scrollTop = element.scrollHeight;
  }, [order.output, open]);
  return (
    <>
      <button type="button" class="order-head" aria-expanded={open} onClick={onOpen}>
        <Mark cls={runs ? 1 : order.exit === 0 ? 0 : 3} />
        <code class="grow">{order.words}</code>
        <span class="muted number" role="status">
          {result}, {span((order.ended_ms ?? now.value) - order.began_ms)}
        </span>
      </button>
      {open && (
        <pre
          ref={output}
          class="output"
          tabIndex={0}
          aria-label={`Output of ${order.words}`}
          onScroll={(event) => {
            const element = event.currentTarget;
            following.current = element.scrollTop + element.clientHeight >= element.scrollHeight - 8;
          }}
        >
          {order.output ? order.output.length < LONG ? <Text>{order.output}</Text> : order.output : "No output yet."}
        </pre>
      )}
    </>
  );
}
