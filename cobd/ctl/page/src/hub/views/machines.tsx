// The machines of all clusters, and machines that no cluster knows.
import { useState } from "preact/hooks";
import { Columns, Empty } from "../../marks";
import { useHub } from "../load";
import { Answered, ClusterLink, StateWord } from "../parts";
import type { Machine } from "../wire";

export function MachinesView() {
  const [orphans, setOrphans] = useState(false);
  const machines = useHub<Machine[]>(["machines"], orphans ? { orphans: "true" } : {}, orphans ? 0 : 5000);
  return (
    <div class="view">
      <div class="fields">
        <h1>Machines</h1>
        <label class="with-mark">
          <input type="checkbox" checked={orphans} onChange={(event) => setOrphans(event.currentTarget.checked)} /> only orphans: machines of providers that no cluster knows
        </label>
      </div>
      <section class="panel scroll-x" aria-label="Machines" tabIndex={0}>
        <Answered of={machines}>
          {(all) =>
            all.length === 0 ? (
              <Empty>{orphans ? "No orphans: each machine belongs to a cluster." : "No machines."}</Empty>
            ) : (
              <table class="list">
                <Columns of={["Machine", "State", "Cluster", "Provider", "Address"]} />
                <tbody>
                  {all.map((machine) => (
                    <tr key={`${machine.cluster}/${machine.host}/${machine.id}`}>
                      <th scope="row" class="id">
                        {machine.host}
                      </th>
                      <td>
                        <StateWord state={machine.state} />
                      </td>
                      <td>{machine.cluster ? <ClusterLink name={machine.cluster.split("/").at(-1) ?? machine.cluster} /> : "–"}</td>
                      <td>{machine.provider}</td>
                      <td class="id">{machine.address ?? "–"}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            )
          }
        </Answered>
      </section>
    </div>
  );
}
