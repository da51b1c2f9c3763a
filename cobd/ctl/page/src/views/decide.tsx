// The decision of a conflict between a user's edit and the model.
import { propose } from "../proposal";

/** The buttons that decide a conflict in a file, or in all files of an object. */
export function Decide({ id, path }: { id: string; path?: string }) {
  const of = path === undefined ? { cob: id } : { cob: id, path };
  return (
    <span class="buttons">
      <button type="button" class="small" onClick={() => propose({ order: "resolve", ...of, keep: "model" })}>
        Keep the model's lines…
      </button>
      <button type="button" class="small" onClick={() => propose({ order: "resolve", ...of, keep: "host" })}>
        Keep the host's lines…
      </button>
    </span>
  );
}
