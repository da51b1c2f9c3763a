// The layout and the plan of the text in the editor, saved or not.
import { Interruptions } from "../dialog";
import { useLoad, type Loaded } from "../load";
import { Columns, Empty, Loading, Section, Trouble } from "../parts";
import { cluster } from "../store";
import type { Plan } from "../wire";
import { count } from "../words";
import { ChangeList } from "./generations";

export type Trial = <T>(command: "cob.solve" | "cob.plan", from: number) => Promise<T>;

interface Layout {
  clusters: {
    name: string;
    solvable: boolean | null;
    nodes: { name: string; services: string[]; hardwaretype?: string | null; imagetype?: string | null }[];
    reason?: string;
    leaving?: string[];
  }[];
}

interface Props {
  trial: Trial;
  /** Another number: another text. */
  version: number;
  depot: boolean;
}

/** The reason of the language server against a trial. */
const WRONG = "the model has errors";
const MOST = 100;

export function Draft({ trial, version, depot }: Props) {
  const from = cluster.value?.generation ?? 0;
  const layout = useLoad<Layout>("solve", () => trial<Layout>("cob.solve", from), version);
  const plan = useLoad<Plan>(depot ? `plan ${from}` : "", () => trial<Plan>("cob.plan", from), version);
  return (
    <>
      <Section title="Layout" more={<span class="muted">of this text, saved or not</span>} class={layout.loading ? "reserve" : ""}>
        <State of={layout} what="The layout" />
        {!layout.error && layout.value && <Clusters layout={layout.value} />}
      </Section>
      {depot && (
        <Section title="Plan" more={<span class="muted">from generation {from} to this text</span>} class={plan.loading ? "reserve" : ""}>
          <State of={plan} what="The plan" />
          {!plan.error && plan.value && (
            <>
              <ChangeList changes={plan.value.changes} />
              <Interruptions plan={plan.value} />
            </>
          )}
        </Section>
      )}
    </>
  );
}

function State<T>({ of, what }: { of: Loaded<T>; what: string }) {
  if (of.loading) return <Loading />;
  if (of.error === WRONG) return <Empty>{what} follows when the text has no errors.</Empty>;
  return <Trouble error={of.error} hints={of.hints} again={of.again} />;
}

function Clusters({ layout }: { layout: Layout }) {
  if (layout.clusters.length === 0) return <Empty>The model has no cluster.</Empty>;
  return (
    <>
      {layout.clusters.map((one) => (
        <div key={one.name}>
          <h3>
            {one.name}: {one.solvable ? count(one.nodes.length, "node") : one.solvable === false ? "no layout" : "undecided"}
          </h3>
          {!one.solvable && <p class="warning">{one.reason ?? "the search ended without a decision"}</p>}
          {one.nodes.length > 0 && (
            <div class="scroll-x">
              <table class="list">
                <Columns of={["Node", "Services", "Machine"]} />
                <tbody>
                  {one.nodes.slice(0, MOST).map((node) => (
                    <tr key={node.name}>
                      <th scope="row" class="nowrap">
                        {node.name}
                      </th>
                      <td>{node.services.join(", ") || "nothing"}</td>
                      <td>{[node.hardwaretype, node.imagetype].filter(Boolean).join(", ") || "–"}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
          {one.nodes.length > MOST && <p class="muted">and {count(one.nodes.length - MOST, "more node")}</p>}
          {(one.leaving ?? []).length > 0 && <p>Leaving: {one.leaving?.join(", ")}</p>}
        </div>
      ))}
    </>
  );
}
