// The dialog before an order: its effect first, then the question.
import { useEffect, useRef, useState } from "preact/hooks";
import { wordsOf, type Order } from "./api";
import { useAsk } from "./load";
import { CobLink, Columns, Loading, Mark, Trouble } from "./parts";
import { remember } from "./plans";
import { carryOut, proposal } from "./proposal";
import { cluster, now } from "./store";
import type { Plan } from "./wire";
import { count, span } from "./words";

interface Question {
  title: string;
  explain: string;
  /** A destructive order asks for this text. */
  typed?: string;
  plan?: { name: string; params: Record<string, string> };
  button: string;
}

function questionOf(order: Order): Question {
  switch (order.order) {
    case "switch":
      return {
        title: `Switch to generation ${order.to}`,
        explain: "All hosts activate the generation and move to its states, in the order of the dependencies.",
        plan: { name: "plan", params: { generation: String(order.to) } },
        button: "Switch",
      };
    case "rollback": {
      const to = order.to === undefined ? "the generation before" : `generation ${order.to}`;
      const typed = order.to ?? cluster.value?.generation;
      return {
        title: `Roll back to ${to}`,
        explain: "All hosts go back. Edits of users stay.",
        ...(typed === undefined ? {} : { typed: String(typed) }),
        ...(order.to === undefined ? {} : { plan: { name: "plan", params: { generation: String(order.to) } } }),
        button: "Roll back",
      };
    }
    case "cancel":
      return {
        title: `Cancel the switch to generation ${order.generation}`,
        explain: "Running transitions end at once, and no further transition starts.",
        typed: String(order.generation),
        button: "Cancel the switch",
      };
    case "stop":
      return {
        title: `Stop ${order.what}`,
        explain: "It stays stopped until an operator starts it, or until the next switch.",
        typed: order.what,
        plan: { name: "stop-plan", params: { what: order.what } },
        button: "Stop",
      };
    case "restart":
      return {
        title: `Restart ${order.what}`,
        explain: "Services that need it stop first and start after it.",
        typed: order.what,
        plan: { name: "restart-plan", params: { what: order.what } },
        button: "Restart",
      };
    case "start":
      return {
        title: `Start ${order.what}`,
        explain: "The order of an operator to stop it ends, also for the objects that were stopped for it.",
        plan: { name: "start-plan", params: { what: order.what } },
        button: "Start",
      };
    case "pause":
      return { title: "Pause all hosts", explain: "No new transition starts. Running transitions finish.", button: "Pause" };
    case "resume":
      return { title: "Resume all hosts", explain: "Transitions may start again.", button: "Resume" };
    case "resolve": {
      const what = order.path || "all files in conflict";
      return order.keep === "model"
        ? {
            title: "Keep the model's lines",
            explain: `In ${what} of ${order.cob} the conflicting lines become the lines of the model. Other edits of users stay. The store keeps the replaced lines.`,
            typed: order.cob,
            button: "Keep the model's lines",
          }
        : {
            title: "Keep the host's lines",
            explain: `In ${what} of ${order.cob} the conflicting lines stay as they are on the host.`,
            button: "Keep the host's lines",
          };
    }
    default:
      return { title: wordsOf(order), explain: "", button: "Give the order" };
  }
}

/** The question for several decisions of conflicts. */
function questionOfMany(orders: Order[]): Question {
  const question = questionOf(orders[0]!);
  const objects = count(orders.length, "object");
  const keepsModel = orders.some((order) => order.order === "resolve" && order.keep === "model");
  return {
    title: `${question.title} in ${objects}`,
    explain: keepsModel
      ? `In all files in conflict of ${objects} the conflicting lines become the lines of the model. Other edits of users stay. The stores keep the replaced lines.`
      : `In all files in conflict of ${objects} the conflicting lines stay as they are on the hosts.`,
    ...(keepsModel ? { typed: String(orders.length) } : {}),
    button: question.button,
  };
}

export function OrderDialog() {
  const orders = proposal.value;
  const first = orders?.[0];
  return orders && first ? <Ask key={JSON.stringify(orders)} order={first} orders={orders} /> : null;
}

function Ask({ order, orders }: { order: Order; orders: Order[] }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const question = orders.length > 1 ? questionOfMany(orders) : questionOf(order);
  const ready = question.typed === undefined || typed.trim() === question.typed;
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const close = () => (proposal.value = null);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!ready || busy) return;
    setBusy(true);
    for (const one of orders) if (!(await carryOut(one))) break;
    close();
  };
  return (
    <dialog ref={dialog} class="ask" aria-labelledby="ask-title" onClose={close}>
      <form onSubmit={submit}>
        <h2 id="ask-title">{question.title}</h2>
        <p>{question.explain}</p>
        {question.plan && <Effect name={question.plan.name} params={question.plan.params} />}
        {question.typed !== undefined && (
          <label class="typed">
            <span>
              Type <code>{question.typed}</code> to confirm
            </span>
            <input
              type="text"
              autocomplete="off"
              autocapitalize="off"
              spellcheck={false}
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
            />
          </label>
        )}
        <footer>
          <code class="muted grow">
            {wordsOf(order)}
            {orders.length > 1 && ` and ${orders.length - 1} more`}
          </code>
          <button type="button" onClick={() => dialog.current?.close()}>
            Close
          </button>
          <button type="submit" class={question.typed === undefined ? "primary" : "danger"} disabled={!ready || busy}>
            {question.button}
          </button>
        </footer>
      </form>
    </dialog>
  );
}

/** The plans of an answer: a plan, or a list of plans. */
export function plansOf(answer: Plan | Plan[] | null | undefined): Plan[] {
  const list = Array.isArray(answer) ? answer : answer ? [answer] : [];
  return list.filter((plan) => Array.isArray(plan.interrupted));
}

function Effect({ name, params }: { name: string; params: Record<string, string> }) {
  const asked = useAsk<Plan | Plan[]>(name, params);
  const plans = plansOf(asked.value?.answer);
  useEffect(() => {
    if (name === "plan" && plans[0]) remember(plans[0], now.value);
  }, [asked.value]);
  return (
    <div class="effect">
      {asked.loading && <Loading />}
      <Trouble error={asked.error} hints={asked.hints} again={asked.again} />
      {plans.map((plan, at) => (
        <Interruptions key={at} plan={plan} />
      ))}
    </div>
  );
}

/** The services that a plan interrupts, and how long. */
export function Interruptions({ plan, most = 12 }: { plan: Plan; most?: number }) {
  const { forecast, interrupted } = plan;
  const away = interrupted.filter((one) => !one.in_place);
  const changed = interrupted.length - away.length;
  const stuck = Object.entries(forecast.stuck ?? {});
  return (
    <>
      {!forecast.converges && (
        <div class="trouble">
          <p>
            <Mark cls={3} /> By the forecast it does not converge.
          </p>
          {stuck.slice(0, 5).map(([id, words]) => (
            <p key={id}>
              <CobLink id={id} /> {words.join(", ")}
            </p>
          ))}
        </div>
      )}
      <p>
        {away.length === 0 ? "It interrupts no service" : <b>It interrupts {count(away.length, "object")}</b>}
        {changed > 0 && `, changes ${count(changed, "object")} in place`} and takes about{" "}
        <b class="number">{span(forecast.p50_us / 1000)}</b>
        {forecast.p90_us > forecast.p50_us && <> (nine of ten times at most {span(forecast.p90_us / 1000)})</>}.
      </p>
      {plan.irreversible.length > 0 && (
        <p class="warning">
          <Mark cls={2} /> It makes {count(plan.irreversible.length, "irreversible transition")}.
        </p>
      )}
      {away.length > 0 && (
        <table class="list interruptions">
          <Columns of={["Interrupted", ["After", "right"], ["For", "right"]]} />
          <tbody>
            {away.slice(0, most).map((one) => (
              <tr key={one.cob}>
                <td>
                  <CobLink id={one.cob} />
                </td>
                <td class="right number">{span(one.begin_us / 1000)}</td>
                <td class="right number">
                  {one.end_us === undefined ? `stays ${one.to ?? "away"}` : span((one.end_us - one.begin_us) / 1000)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {away.length > most && <p class="muted">and {count(away.length - most, "more object")}</p>}
    </>
  );
}
