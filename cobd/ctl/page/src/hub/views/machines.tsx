// The machines of all clusters, and machines that no cluster knows.
import { useState } from "preact/hooks";
import { Columns, Empty } from "../../marks";
import { useHub } from "../load";
import { Answered, ClusterLink, StateWord } from "../parts";
import type { Machine } from "../wire";

/** An answer with fewer machines is the last page. */
const MOST = 1000;

export function MachinesView() {
  const [orphans, setOrphans] = useState(false);
  const [after, setAfter] = useState<Record<string, string>>({});
  const isFirst = Object.keys(after).length === 0;
  const machines = useHub<Machine[]>(["machines"], orphans ? { orphans: "true" } : after, orphans ? 0 : 5000);
  return (
    <div class="view">
      <div class="fields">
        <h1>Machines</h1>
        <label class="with-mark">
          <input type="checkbox" checked={orphans} onChange={(event) => (setOrphans(event.currentTarget.checked), setAfter({}))} /> only orphans: machines of providers that no cluster knows
        </label>
      </div>
      <section class="panel scroll-x" aria-label="Machines" tabIndex={0}>
        <Answered of={machines}>
          {(all) =>
            all.length === 0 && isFirst ? (
              <Empty>{orphans ? "No orphans: each machine belongs to a cluster." : "No machines."}</Empty>
            ) : (
              <>
                <table class="list">
                  <Columns of={["Machine", "State", "Cluster", "Provider", "Address"]} />
                  <tbody>
                    {all.map((machine) => (
                      <tr key={`${machine.tenant}/${machine.cluster}/${machine.host}/${machine.id}`}>
                        <th scope="row" class="id">
                          {machine.host}
                        </th>
                        <td>
                          <StateWord state={machine.state} />
                        </td>
                        <td>{machine.cluster ? <ClusterLink name={machine.cluster} of={machine.tenant} /> : "–"}</td>
                        <td>{machine.provider}</td>
                        <td class="id">{machine.address ?? "–"}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
                <p class="more buttons">
                  {!isFirst && !orphans && (
                    <button type="button" class="small" onClick={() => setAfter({})}>
                      First machines
                    </button>
                  )}
                  {!orphans && all.length >= MOST && (
                    <button type="button" class="small" onClick={() => setAfter(placeOf(all.at(-1)))}>
                      Next machines
                    </button>
                  )}
                </p>
              </>
            )
          }
        </Answered>
      </section>
    </div>
  );
}

/** The query for the machines after those of the cluster of this machine. */
const placeOf = (machine: Machine | undefined): Record<string, string> =>
  machine?.cluster ? { after: machine.cluster, ...(machine.tenant ? { after_tenant: machine.tenant } : {}) } : {};
