// Rows of objects in a panel.
import { CobLink, FlagWords, Mark, Since, StateWords, WaitLinks } from "../parts";
import { table, tick } from "../store";
import { UNKNOWN } from "../table";

export function ObjectRows({ places }: { places: number[] }) {
  tick.value;
  const objects = table.value!;
  return (
    <ul class="rows">
      {places.map((index) => (
        <li key={objects.ids[index]}>
          <Mark cls={objects.cls[index] ?? UNKNOWN} />
          <span class="grow">
            <CobLink id={objects.ids[index] ?? ""} /> <StateWords index={index} /> <FlagWords flags={objects.flags[index] ?? 0} />{" "}
            <WaitLinks index={index} />
          </span>
          <span class="muted">
            <Since ms={objects.since[index] ?? 0} />
          </span>
        </li>
      ))}
    </ul>
  );
}
